// Builds the package into dist/: modules with their types, as they are published, and the licence beside them.
import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const home = fileURLToPath(new URL("..", import.meta.url));
rmSync(`${home}/dist`, { recursive: true, force: true });
execFileSync(process.execPath, [`${home}/node_modules/typescript/bin/tsc`, "-p", `${home}/tsconfig.build.json`], { cwd: home, stdio: "inherit" });
copyFileSync(`${home}/../LICENSE`, `${home}/LICENSE`);
