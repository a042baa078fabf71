// The package as its users see it: from ESM and CommonJS, with types, and as a command; one state behind both faces.

import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import { folder } from "./support.js";

const PACKAGE = join(__dirname, "..");

/** A folder with this package and the types of Node installed. */
function project(files: Record<string, string>): string {
  const home = folder();
  mkdirSync(join(home, "node_modules", "@flovyn"), { recursive: true });
  mkdirSync(join(home, "node_modules", "@types"), { recursive: true });
  symlinkSync(PACKAGE, join(home, "node_modules", "@flovyn", "sdk"));
  symlinkSync(join(PACKAGE, "node_modules", "@types", "node"), join(home, "node_modules", "@types", "node"));
  symlinkSync(join(PACKAGE, "node_modules", "zod"), join(home, "node_modules", "zod"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(home, name), text);
  return home;
}

/** The examples of a page as one program: imports come first, and each is a scope of its own after what the first declares. */
function programOf(page: string): string {
  const guide = readFileSync(join(PACKAGE, "..", "docs", page), "utf8");
  const blocks = [...guide.matchAll(/```ts\n([^]*?)```/g)].map(([, code]) => code as string);
  expect(blocks.length).toBeGreaterThan(2);
  const imports = new Map<string, Set<string>>();
  const note = (_: string, names: string, from: string): string => {
    const known = imports.get(from) ?? new Set<string>();
    imports.set(from, known);
    for (const name of names.split(",")) known.add(name.trim());
    return "";
  };
  const bodies = blocks
    .filter((code) => !code.includes("next.config"))
    .map((code) => code.replace(/^import \{(.*)\} from "(.*)";$/gm, note));
  const declared = bodies[0]?.replace(/^const result.*$/m, "") ?? "";
  const rest = bodies.map((code, at) => (at === 0 ? "" : `{\n${code}\n}`));
  const head = [...imports].map(([from, names]) => `import { ${[...names].join(", ")} } from "${from}";`);
  return [...head, declared, ...rest].join("\n");
}

const PROGRAM = `
const greet = task("greet", async (name) => "Hello, " + name + "!");
const hello = agent("hello", async (_, name) => greet(name));
run(hello, "world", { url: "memory:" }).then(console.log);
`;

test("both module systems reach the same package", () => {
  const both = `
    import { createRequire } from "node:module";
    import { Agent, TaskFailed } from "@flovyn/sdk";
    import { check } from "@flovyn/sdk/testing";
    import { ReactAgent } from "@flovyn/sdk/toolkit";
    const require = createRequire(import.meta.url);
    const other = require("@flovyn/sdk");
    const toolkit = require("@flovyn/sdk/toolkit");
    console.log(Agent === other.Agent, TaskFailed === other.TaskFailed, typeof check, ReactAgent === toolkit.ReactAgent);
  `;
  const home = project({
    "a.mjs": `import { agent, run, task } from "@flovyn/sdk";${PROGRAM}`,
    "b.cjs": `const { agent, run, task } = require("@flovyn/sdk");${PROGRAM}`,
    "both.mjs": both,
  });
  const told = (name: string): string => execFileSync(process.execPath, [join(home, name)], { encoding: "utf8" }).trim();
  expect(told("a.mjs")).toBe("Hello, world!");
  expect(told("b.cjs")).toBe("Hello, world!");
  expect(told("both.mjs")).toBe("true true function true");
});

test("the types say what is allowed, and the documentation compiles", () => {
  const refused = `
    import { agent, run, task } from "@flovyn/sdk";
    const double = task("double", async (x: number) => x * 2);
    const none = task("none", async () => "x");
    const adder = agent("adder", { state: () => ({ i: 0 }) }, async (ctx, x: number) => {
      const y: number = await double(x);
      const z: string = await none();
      ctx.state.i = y;
      // @ts-expect-error a number is wanted
      await double("x");
      // @ts-expect-error an input is wanted
      await double();
      // @ts-expect-error there is no such field
      ctx.state.j = 1;
      const all: [number, string] = await ctx.joinAll([double(1), none()]);
      return z + all[1];
    });
    const result: string = await run(adder, 1);
    // @ts-expect-error a number is wanted
    await run(adder, "x");
    // @ts-expect-error an input is wanted
    await run(adder);
    console.log(result);
  `;
  const home = project({
    "refused.mts": refused,
    "guide.mts": programOf("typescript.md"),
    "agents.mts": programOf("agents.md"),
    "common.cts": `import { agent } from "@flovyn/sdk";\nexport const a = agent("a", async () => 1);\n`,
    "tsconfig.json": JSON.stringify({
      compilerOptions: {
        target: "ES2022",
        lib: ["ES2023", "ESNext.Disposable", "DOM"],
        module: "Node16",
        strict: true,
        noEmit: true,
        types: ["node"],
      },
    }),
  });
  const tsc = join(PACKAGE, "node_modules", "typescript", "bin", "tsc");
  let complaints = "";
  try {
    execFileSync(process.execPath, [tsc, "-p", home], { encoding: "utf8" });
  } catch (error) {
    complaints = (error as { stdout: string }).stdout;
  }
  expect(complaints).toBe("");
}, 180_000);

test("the package carries the command", () => {
  const version = (JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8")) as { version: string }).version;
  const told = execFileSync(process.execPath, [join(PACKAGE, "bin", "flovyn.js"), "--version"], { encoding: "utf8" });
  expect(told.trim()).toBe(`flovyn ${version}`);
});
