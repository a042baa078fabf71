// Proves the package as others get it: packed, installed into an empty Vite project, type-checked, built, and its parts without
// React run by Node. What it installs besides is of the versions that this package is developed with, which npm has at hand.
//
// node scripts/prove.mjs [REACT_VERSION]
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const home = fileURLToPath(new URL("..", import.meta.url));
const about = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
const project = mkdtempSync(join(tmpdir(), "flovyn-react-"));
const react = process.argv[2];

function run(folder, program, ...words) {
  return execFileSync(program, words, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
}

function write(name, text) {
  writeFileSync(join(project, name), text);
}

function expect(isSo, what) {
  if (!isSo) throw new Error(`The package is not what it should be: ${what}`);
}

function built(entry, folder) {
  write("index.html", `<!doctype html><title>Chat</title><div id="root"></div><script type="module" src="/${entry}"></script>\n`);
  run(project, join(project, "node_modules/.bin/vite"), "build", "--logLevel", "warn", "--outDir", folder);
  const assets = join(project, folder, "assets");
  return readdirSync(assets).map((name) => ({ name, text: readFileSync(join(assets, name), "utf8") }));
}

try {
  run(home, "npm", "run", "--silent", "build");
  const [packed] = JSON.parse(run(home, "npm", "pack", "--json", "--pack-destination", project));
  const names = packed.files.map((file) => file.path);
  for (const name of ["LICENSE", "README.md", "styles.css", "dist/index.js", "dist/index.d.ts", "dist/client/index.js", "dist/transcript/index.d.ts", "dist/front_ends/ai_sdk.js", "dist/front_ends/ag_ui.d.ts"]) expect(names.includes(name), `it lacks ${name}`);
  const odd = names.filter((name) => !/^(dist\/|LICENSE$|README\.md$|package\.json$|styles\.css$)/.test(name));
  expect(odd.length === 0, `it has ${odd.join(", ")}`);

  const version = (name) => (react && /^(@types\/)?react(-dom)?$/.test(name) ? react : about.devDependencies[name]);
  const dependencies = Object.fromEntries(["react", "react-dom", "@types/react", "@types/react-dom", "@vitejs/plugin-react", "typescript", "vite"].map((name) => [name, version(name)]));
  write("package.json", JSON.stringify({ private: true, type: "module", dependencies: { ...dependencies, [about.name]: `file:${packed.filename}` } }));
  run(project, "npm", "install", "--prefer-offline", "--no-audit", "--no-fund", "--silent");

  mkdirSync(join(project, "src"));
  write(
    "tsconfig.json",
    JSON.stringify({ compilerOptions: { target: "ES2022", lib: ["ES2022", "DOM", "DOM.Iterable"], module: "ESNext", moduleResolution: "bundler", jsx: "react-jsx", strict: true, noEmit: true, types: [] }, include: ["src"] }),
  );
  write("vite.config.js", 'import react from "@vitejs/plugin-react";\nexport default { plugins: [react()] };\n');
  write("src/style.d.ts", 'declare module "*.css";\n');
  write(
    "src/main.tsx",
    `import { Chat, FlovynProvider, useApprovals, useRun } from "@flovyn/react";
import "@flovyn/react/styles.css";
import { createRoot } from "react-dom/client";

function Inbox() {
  const { approvals, approve, deny } = useApprovals();
  return (
    <ul>
      {approvals.map((each) => (
        <li key={each.key}>
          {each.block.call.name} <button onClick={() => void approve(each)}>Yes</button> <button onClick={() => void deny(each, "No.")}>No</button>
        </li>
      ))}
    </ul>
  );
}

function Length({ id }: { id: string }) {
  const { blocks, text, status, send } = useRun(id);
  return <button onClick={() => void send("More.", { delivery: "next_turn" })}>{blocks.length + text.length} {status}</button>;
}

createRoot(document.getElementById("root")!).render(
  <FlovynProvider url="/flovyn" token={async () => "token"}>
    <Inbox />
    <Length id="run-1" />
    <Chat run="run-1" renderMarkdown={(text) => <p>{text}</p>} />
  </FlovynProvider>,
);
`,
  );
  write("src/small.ts", 'import { emptyTranscript, withEvents } from "@flovyn/react";\nconsole.log(withEvents(emptyTranscript, []));\n');
  run(project, join(project, "node_modules/.bin/tsc"));

  const whole = built("src/main.tsx", "whole");
  expect(whole.some((file) => file.name.endsWith(".css") && file.text.includes(".flovyn-chat")), "its stylesheet is not built");
  expect(whole.some((file) => file.name.endsWith(".js") && file.text.includes("flovyn-composer")), "its chat is not built");
  const small = built("src/small.ts", "small");
  expect(!small.some((file) => file.text.includes("flovyn-") || file.text.includes("useSyncExternalStore")), "who uses the reducer alone gets the chat too");

  // Without React, and in Node.
  write("node.mjs", 'import { createClient } from "@flovyn/react/client";\nimport { emptyTranscript, withEvents } from "@flovyn/react/transcript";\nconsole.log(typeof createClient, withEvents(emptyTranscript, []).entries.size);\n');
  for (const name of ["react", "react-dom"]) rmSync(join(project, "node_modules", name), { recursive: true });
  expect(run(project, process.execPath, "node.mjs").trim() === "function 0", "its parts without React do not run by themselves");
  console.log(`${packed.filename}: ${names.length} files, ${Math.round(packed.size / 1024)} KiB; type-checked and built with React ${dependencies.react}`);
} finally {
  rmSync(project, { recursive: true, force: true });
}
