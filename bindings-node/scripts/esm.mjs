// Writes the ESM face of the package: every name of the CommonJS build, so that both share one state.

import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const faces = { index: "../dist/index.js", testing: "../dist/testing/index.js", toolkit: "../dist/toolkit/index.js" };

mkdirSync(new URL("../esm/", import.meta.url), { recursive: true });
for (const [name, built] of Object.entries(faces)) {
  const names = Object.keys(require(built)).filter((each) => each !== "__esModule").sort();
  const text = `import all from "${built}";\nexport const {\n${names.map((each) => `  ${each},\n`).join("")}} = all;\n`;
  writeFileSync(new URL(`../esm/${name}.mjs`, import.meta.url), text);
  writeFileSync(new URL(`../esm/${name}.d.mts`, import.meta.url), `export * from "${built}";\n`);
}
