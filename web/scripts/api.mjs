// Writes src/api/schema.d.ts from an OpenAPI document: `npm run api -- FILE`, where FILE is what GET /openapi.json answers.
import { readFile, writeFile } from "node:fs/promises";
import openapi, { astToString } from "openapi-typescript";

const [file] = process.argv.slice(2);
if (!file) {
  console.error("Say which document: npm run api -- FILE");
  process.exit(2);
}
const found = await openapi(JSON.parse(await readFile(file, "utf8")), { alphabetize: true });
const header = "// The server's REST API as types; made by `npm run api -- FILE`, not by hand.\n";
await writeFile(new URL("../src/api/schema.d.ts", import.meta.url), header + astToString(found));
