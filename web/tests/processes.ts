// A server and a worker for tests, those of the package @flovyn/react included: their own processes on free ports, ended by
// their own ids.
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const program = join(dirname(fileURLToPath(import.meta.url)), "worker", "serve.py");

export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export async function until(what: string, isSo: () => Promise<boolean> | boolean, milliseconds = 60_000): Promise<void> {
  const end = Date.now() + milliseconds;
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`Waited too long: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export async function ended(child: ChildProcess | null): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await gone;
}

/** A server on a database of its own, and a worker that serves scripted agents. */
export class Processes {
  private server: ChildProcess | null = null;
  private worker: ChildProcess | null = null;

  protected constructor(
    private readonly home: string,
    private readonly http: number,
    private readonly grpc: number,
  ) {}

  static async open(): Promise<Processes> {
    const world = new this(mkdtempSync(join(tmpdir(), "flovyn-console-")), await freePort(), await freePort());
    try {
      await world.startServer();
      await world.startWorker();
    } catch (error) {
      await world.close();
      throw error;
    }
    return world;
  }

  token(): string {
    return readFileSync(join(this.home, "token"), "utf8").trim();
  }

  /** Where the console is. */
  get url(): string {
    return `http://127.0.0.1:${this.http}`;
  }

  /** The code of the link that the server has printed; it signs in once. */
  code(): string {
    const links = [...readFileSync(join(this.home, "server.log"), "utf8").matchAll(/sign-in#code=([\w.-]+)/g)];
    return links.at(-1)?.[1] ?? "";
  }

  async startServer(): Promise<void> {
    const binary = process.env.FLOVYN_BIN;
    if (!binary) throw new Error("FLOVYN_BIN is the flovyn command to test against.");
    const log = openSync(join(this.home, "server.log"), "a");
    const args = ["dev", "--db", `sqlite:${join(this.home, "test.db")}`, "--http-port", String(this.http), "--grpc-port", String(this.grpc), "--token-file", join(this.home, "token")];
    this.server = spawn(binary, args, { env: { ...process.env, FLOVYN_HOME: this.home }, stdio: ["ignore", log, log] });
    await until("the server is ready", () =>
      fetch(`${this.url}/_/ready`).then(
        (answer) => answer.ok,
        () => false,
      ),
    );
  }

  /** Ends the server as a crash would. */
  async killServer(): Promise<void> {
    await ended(this.server);
    this.server = null;
  }

  async startWorker(): Promise<void> {
    const python = process.env.FLOVYN_PYTHON;
    if (!python) throw new Error("FLOVYN_PYTHON is a Python that has flovyn.");
    const log = openSync(join(this.home, "worker.log"), "a");
    const worker = spawn(python, [program, `http://127.0.0.1:${this.grpc}`, join(this.home, "work")], { env: { ...process.env, FLOVYN_TOKEN: this.token(), FLOVYN_HOME: this.home }, stdio: ["pipe", "pipe", log] });
    this.worker = worker;
    await new Promise<void>((resolve, reject) => {
      worker.stdout?.on("data", (text) => String(text).includes("ready") && resolve());
      worker.once("exit", () => reject(new Error(readFileSync(join(this.home, "worker.log"), "utf8"))));
    });
  }

  async killWorker(): Promise<void> {
    await ended(this.worker);
    this.worker = null;
  }

  async close(): Promise<void> {
    await ended(this.worker);
    await ended(this.server);
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  /** Asks the server, as a program with a key does. */
  async ask<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<T> {
    const request: RequestInit = { method, headers: { Authorization: `Bearer ${this.token()}`, "Content-Type": "application/json" } };
    if (body !== undefined) request.body = JSON.stringify(body);
    const answer = await fetch(`${this.url}/api/orgs/default${path}`, request);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return (text ? JSON.parse(text) : {}) as T;
  }

  start(id: string, prompt: string, more: object = {}): Promise<unknown> {
    return this.ask("POST", "/agent-executions", { kind: "react-agent", id, userPrompt: prompt, ...more });
  }

  async status(id: string, wanted: string): Promise<void> {
    await until(`${id} is ${wanted}`, async () => (await this.ask<{ status: string }>("GET", `/agent-executions/${id}`)).status === wanted, 120_000);
  }
}
