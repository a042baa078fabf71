// How the console is built into the server, and how it is served while it is worked on.
import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import tailwindcss from "@tailwindcss/vite";
import type { Plugin, ProxyOptions } from "vite";
import { defineConfig } from "vitest/config";

const url = process.env.FLOVYN_URL ?? "http://127.0.0.1:8080";
const token = process.env.FLOVYN_TOKEN ?? "";

// While developing, the proxy holds the token, so there is nobody to sign in: the session is always there.
function developmentSession(): Plugin {
  return {
    name: "flovyn-development-session",
    apply: "serve",
    configureServer(server) {
      server.middlewares.use("/api/session", (request, response) => {
        response.setHeader("Content-Type", "application/json");
        if (request.method === "DELETE") {
          response.statusCode = 204;
          response.end();
          return;
        }
        const session = { org: "default", name: "development", scopes: "exec:read exec:write keys audit:read", expiresAt: null };
        response.end(JSON.stringify(session));
      });
    },
  };
}

const api: ProxyOptions = { target: url, changeOrigin: true, headers: { Authorization: `Bearer ${token}`, Origin: url } };

// What the console shares with other people's front ends is read from its sources, so that both are the same code.
const shared = (folder: string) => ({ find: `@flovyn/react/${folder}`, replacement: fileURLToPath(new URL(`../react/src/${folder}/index.ts`, import.meta.url)) });

export default defineConfig({
  plugins: [react(), tailwindcss(), developmentSession()],
  resolve: { alias: [shared("client"), shared("transcript")] },
  base: "/",
  worker: { format: "es" },
  server: { host: "127.0.0.1", proxy: { "/api": api, "/openapi.json": api } },
  build: {
    outDir: "../server/console",
    emptyOutDir: true,
    target: "es2022",
    // The preload helper is a plain script of ours; data: modules and inlined assets would need a wider policy.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 400,
  },
  test: { include: ["tests/unit/**/*.test.{ts,tsx}"], environment: "node" },
});
