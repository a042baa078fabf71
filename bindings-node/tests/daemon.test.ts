// This process as a machine of a server: let in, killed, started again, revoked.

import { mkdirSync, readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";

import { agent, connect, daemon, InvalidArgument, Local, setLogger, Unauthenticated } from "@flovyn/sdk";
import { afterEach, describe, expect, it } from "vitest";

import { serve } from "./backends.js";
import { disposing, folder, start, until } from "./support.js";

const idle = agent("idle", async (ctx) => ctx.waitForSignal<string>("more"));

/** A server, and what an operator does with it. */
async function operated(): Promise<{ url: string; http: string; token: string; pair: (name: string) => Promise<string>; revoke: (name: string) => Promise<void> }> {
  const { url, http, token } = await serve(folder());
  const ask = async <T>(method: string, path: string, body?: object, by = token): Promise<T> => {
    const headers = { authorization: `Bearer ${by}`, "content-type": "application/json" };
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const answer = await fetch(`${http}${path}`, { method, headers, ...sent });
    if (!answer.ok) throw new Error(await answer.text());
    return (await answer.json()) as T;
  };
  const pair = async (name: string): Promise<string> => {
    const asked = { name, host: "a host" };
    const { code, secret } = await ask<{ code: string; secret: string }>("POST", "/machines/pairings", asked);
    await ask("POST", `/api/orgs/default/machines/pairings/${code}/approve`, { owner: "ann" });
    return (await ask<{ token: string }>("GET", "/machines/pairings", undefined, secret)).token;
  };
  const revoke = async (name: string): Promise<void> => void (await ask("DELETE", `/api/orgs/default/machines/${name}`));
  return { url, http, token, pair, revoke };
}

afterEach(() => void setLogger());

describe("a daemon", () => {
  it("goes on after a kill and ends when it is revoked", async () => {
    const { url, pair, revoke } = await operated();
    const [key, work] = [await pair("laptop"), join(folder(), "work")];
    mkdirSync(work);
    const first = start("daemon_victim.cjs", [url, key, work]);
    await until(() => first.output().includes("serves laptop"));
    const client = disposing(await connect(url));
    const handle = await client.start<number>("writer", "otter", { mode: Local("laptop") });
    await until(async () => (await handle.status()) === "WAITING");
    first.process.kill("SIGKILL");
    await first.ended;
    await handle.signal("more", "heron");
    const second = start("daemon_victim.cjs", [url, key, work]);
    expect(await handle.result({ timeoutMs: 60_000 })).toBe(10);
    expect(readFileSync(join(work, "lines"), "utf8")).toBe("otter\nheron\n");
    expect((await handle.describe()).machine).toMatchObject({ name: "laptop", live: true });
    await revoke("laptop");
    expect(await second.ended, second.errors()).toEqual({ code: 0, signal: null });
    expect(second.output()).toContain('Unauthenticated: ');
    expect(second.output()).toContain('does not let the machine "laptop" in any more');
  }, 120_000);

  it("gives back what it holds when it closes", async () => {
    const { url, pair } = await operated();
    const work = folder();
    const machine = daemon({ serverUrl: url, authToken: await pair("laptop"), workspaces: [work], agents: [idle] });
    expect([machine.name, machine.isOpen, machine.workspaces]).toEqual([null, false, [realpathSync(work)]]);
    const client = disposing(await connect(url));
    const running = machine.run();
    await until(() => machine.isOpen);
    expect([machine.name, machine.serverUrl]).toEqual(["laptop", url]);
    const handle = await client.start(idle, undefined, { mode: Local() });
    await until(async () => (await handle.status()) === "WAITING");
    await machine.close();
    await running;
    const held: unknown[] = [];
    for await (const run of client.runs({ status: "RUNNING" })) held.push(run);
    expect(held).toEqual([]);
    await expect(machine.start().then((started) => started.isOpen)).resolves.toBe(false);
  }, 60_000);

  it("refuses in words what is no machine", async () => {
    const { url: serverUrl, http, token, pair } = await operated();
    const authToken = await pair("laptop");
    expect(() => daemon({ serverUrl })).toThrow(/is not paired.*flovyn daemon pair/);
    expect(() => daemon({ authToken })).toThrow(InvalidArgument);
    expect(() => daemon({ serverUrl, authToken, workspaces: ["absent"] })).toThrow("is no directory");
    expect(() => daemon({ serverUrl, authToken, agents: ["writer" as never] })).toThrow("agents takes");
    await expect(daemon({ serverUrl, authToken: token }).start()).rejects.toThrow("that of no machine");
    await expect(daemon({ serverUrl, authToken, name: "desktop" }).start()).rejects.toThrow('machine "laptop"');
    await expect(daemon({ serverUrl, authToken: "fk_guessed" }).start()).rejects.toBeInstanceOf(Unauthenticated);
    await expect(daemon({ serverUrl: http, authToken }).start()).rejects.toThrow("no Flovyn server");
  }, 60_000);

  it("waits for a server that does not answer yet", async () => {
    const said: string[] = [];
    setLogger(({ message }) => void said.push(message));
    const machine = daemon({ serverUrl: "http://127.0.0.1:9", authToken: "fk_1", agents: [idle] });
    const running = machine.run();
    await until(() => said.some((message) => message.includes("tried again in 2 s")));
    await machine.close();
    await running;
    await expect(machine.start()).rejects.toThrow("was closed");
  }, 30_000);
});
