// The four kinds of backend, each fresh for every test.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { afterEach, describe } from "vitest";

import { fileUrl, folder } from "./support.js";

/** A backend by its name; opens a fresh one and gives its URL. */
export interface Backend {
  readonly name: "memory" | "sqlite" | "postgres" | "server";
  open(): Promise<string>;
}

let number = 0;
const ends: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

function postgres(): string {
  const home = process.env["FLOVYN_TEST_POSTGRES"] as string;
  const schema = `test_${process.pid}_${++number}`;
  const psql = process.env["FLOVYN_TEST_PSQL"] as string;
  execFileSync(psql, ["-X", "-q", "-h", home, "-U", "flovyn", "-d", "postgres", "-c", `CREATE SCHEMA ${schema}`]);
  return `postgres://flovyn@${home.replaceAll("/", "%2F")}/postgres?options=-csearch_path%3D${schema}`;
}

/** Starts `flovyn dev` from this package and gives its gRPC URL; it ends with the test. */
export async function server(): Promise<string> {
  return (await serve(folder())).url;
}

/** A `flovyn dev` that runs: the URLs of its gRPC and of its HTTP, and its token. */
export interface Served {
  readonly url: string;
  readonly http: string;
  readonly token: string;
  readonly end: () => Promise<void>;
}

/** Starts `flovyn dev` in a folder, whose `home` has its tokens. */
export async function serve(home: string, port = "0"): Promise<Served> {
  const command = [join(__dirname, "..", "bin", "flovyn.js"), "dev", "--db", `sqlite:${join(home, "runs.db")}`];
  const child = spawn(process.execPath, [...command, "--grpc-port", port, "--http-port", "0", "--json"], {
    env: { ...process.env, FLOVYN_HOME: join(home, "home") },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "close");
  let text = "";
  const ready = new Promise<void>((resolve, reject) => {
    child.stdout.on("data", (piece: Buffer) => {
      text += piece.toString();
      if (text.trimEnd().endsWith("}")) resolve();
    });
    child.on("close", (code) => reject(new Error(`the server ended with ${code}: ${text}`)));
  });
  const before = process.env["FLOVYN_HOME"];
  process.env["FLOVYN_HOME"] = join(home, "home");
  const end = async (): Promise<void> => {
    if (before === undefined) delete process.env["FLOVYN_HOME"];
    else process.env["FLOVYN_HOME"] = before;
    if (child.exitCode === null) child.kill("SIGTERM");
    await ended;
  };
  ends.push(end);
  await ready;
  const { grpc, http, tokenFiles } = JSON.parse(text) as { grpc: string; http: string; tokenFiles: [string] };
  return { url: grpc, http, token: readFileSync(tokenFiles[0], "utf8").trim(), end };
}

/** Every kind of backend. */
export const BACKENDS: readonly Backend[] = [
  { name: "memory", open: async () => `memory:${process.pid}-${++number}` },
  { name: "sqlite", open: async () => fileUrl() },
  { name: "postgres", open: async () => postgres() },
  { name: "server", open: server },
];

/** Tests on every kind of backend. */
export function onEveryBackend(tests: (backend: Backend) => void): void {
  for (const backend of BACKENDS) describe(backend.name, () => tests(backend));
}
