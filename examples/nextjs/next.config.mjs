// The package is taken from this repository; in a project of your own this file is not needed.
import { fileURLToPath } from "node:url";
const root = fileURLToPath(new URL("../..", import.meta.url));
export default { turbopack: { root }, outputFileTracingRoot: root };
