// What the suites share: backends, child processes that can be killed, waiting for what must come.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach } from "vitest";

/** Multiplies the suites that go on for as long as one likes. */
export const SCALE = Number(process.env["SCALE"] ?? "1");

const folders: string[] = [];
const children: ChildProcess[] = [];
const open: AsyncDisposable[] = [];

afterEach(async () => {
  for (const each of open.splice(0)) await each[Symbol.asyncDispose]();
  for (const child of children.splice(0)) if (child.exitCode === null) child.kill("SIGKILL");
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** What `await using` would do, which Node 20 does not know: disposed of after the test. */
export function disposing<T extends AsyncDisposable>(made: T): T {
  open.push(made);
  return made;
}

/** A fresh folder, gone after the test. */
export function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "flovyn-node-"));
  folders.push(made);
  return made;
}

/** The URL of a fresh file that several processes may share. */
export function fileUrl(): string {
  return `sqlite:${join(folder(), "agents.db")}`;
}

/** A child process and what it has written. */
export interface Child {
  readonly process: ChildProcess;
  readonly output: () => string;
  readonly errors: () => string;
  readonly ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
}

/** Starts a program of this folder. */
export function start(program: string, args: string[], environment: Record<string, string> = {}): Child {
  const command = [join(__dirname, program), ...args];
  const made = spawn(process.execPath, command, { env: { ...process.env, ...environment } });
  children.push(made);
  let output = "";
  let errors = "";
  made.stdout.on("data", (text: Buffer) => (output += text.toString()));
  made.stderr.on("data", (text: Buffer) => (errors += text.toString()));
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    made.on("close", (code, signal) => resolve({ code, signal }));
  });
  return { process: made, output: () => output, errors: () => errors, ended };
}

/** Waits until something is there. */
export async function until<T>(look: () => T | Promise<T>, withinMs = 30_000): Promise<NonNullable<T>> {
  const limit = Date.now() + withinMs;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > limit) throw new Error(`nothing came within ${withinMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
