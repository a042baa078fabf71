// Every suite in a process of its own: a test of a process that ends must not end the others.

import { fileURLToPath } from "node:url";

import { defineConfig } from "vitest/config";

const built = (name: string): string => fileURLToPath(new URL(`esm/${name}.mjs`, import.meta.url));

export default defineConfig({
  // The examples are outside of this package.
  resolve: { alias: { "@flovyn/sdk/testing": built("testing"), "@flovyn/sdk/toolkit": built("toolkit"), "@flovyn/sdk": built("index") } },
  test: {
    include: ["tests/**/*.test.ts"],
    pool: "forks",
    // Much of a suite is waiting; two fill two cores.
    maxWorkers: 2,
    globalSetup: "tests/postgres.ts",
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // The package is tested as it is built, not as vite would transform it.
    server: { deps: { external: [/\/(esm|dist)\//] } },
  },
});
