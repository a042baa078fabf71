// The runs below the one that a check is of: what is looked at while they go on, and compared when they have ended.

import type { Client } from "../client.js";
import type { Execution, Handle } from "../handle.js";
import { hub } from "../hub.js";
import { encode, facts, json } from "../serde.js";

/** Ops that depend on when something came, not only on what the code does. */
const TIMING = new Set(["read", "abandon"]);
/** How a run ends by its own code: how far one has come that is stopped depends on when it was. */
const OF_ITSELF = new Set(["COMPLETED", "FAILED"]);

/** A run below the root, and what it left. */
export interface Member {
  /** Its kind and its input. */
  readonly name: string;
  /** Its end, conversation and ops, where it ended of itself. */
  readonly left: string | undefined;
}

/** The runs of a check's world: the root and all below it. */
export async function allRuns(client: Client): Promise<Execution[]> {
  const runs: Execution[] = [];
  for await (const run of client.runs()) runs.push(run);
  return runs;
}

/** What the runs below the root left. */
export async function members(client: Client, root: Handle): Promise<Member[]> {
  const family: Member[] = [];
  for (const run of await allRuns(client)) if (run.id !== root.id) family.push(await member(client, run));
  return family;
}

async function member(client: Client, run: Execution): Promise<Member> {
  const handle = await client.handle(run.id);
  const name = `${run.kind}(${json(shown(await handle.input()))})`;
  if (!OF_ITSELF.has(run.status)) return { name, left: undefined };
  const end = run.status === "COMPLETED" ? shown(await handle.output()) : run.failure;
  return { name, left: json([end, await entries(handle), (await ops(client, handle)).sort()]) };
}

/** How two families differ: in what was started, or in what runs left that ended of themselves both times. */
export function difference(wanted: readonly Member[], found: readonly Member[]): string | undefined {
  const [ends, others] = [byName(wanted), byName(found)];
  for (const name of new Set([...ends.keys(), ...others.keys()])) {
    const [left, other] = [ends.get(name) ?? [], others.get(name) ?? []];
    if (left.length !== other.length) {
      return `the child ${name} was started ${other.length} times, but undisturbed ${left.length} times`;
    }
    if (left.includes(undefined) || other.includes(undefined)) continue;
    const [one, another] = [left.sort(), other.sort()];
    const at = one.findIndex((text, place) => text !== another[place]);
    if (at >= 0) return `the child ${name} left ${String(another[at])}, but undisturbed ${String(one[at])}`;
  }
  return undefined;
}

function byName(family: readonly Member[]): Map<string, (string | undefined)[]> {
  const left = new Map<string, (string | undefined)[]>();
  for (const member of family) left.set(member.name, [...(left.get(member.name) ?? []), member.left]);
  return left;
}

/** The conversation of a run. */
export async function entries(handle: Handle): Promise<unknown[]> {
  return (await handle.messages()).map(({ role, entryType, content }) => [role, entryType, shown(content)]);
}

/** What the code of a run has called. */
export async function ops(client: Client, handle: Handle): Promise<string[]> {
  const text = await hub.call<string>((hub, token) => client.native.journal(hub, token, handle.id));
  const recorded = facts<{ segment: number; label: string; kind: string }[]>(text);
  return recorded.filter(({ kind }) => !TIMING.has(kind)).map(({ segment, label }) => `${segment}: ${label}`);
}

/** A value in the form in which it is stored. */
export function shown(value: unknown): unknown {
  const wire = encode(value);
  return typeof wire === "string" ? (JSON.parse(wire) as unknown) : value;
}
