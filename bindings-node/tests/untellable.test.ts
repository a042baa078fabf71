// What programs throw and give back that cannot be told: the step or the run fails with what can be known of it, and the
// worker goes on.

import { inspect } from "node:util";
import { runInNewContext } from "node:vm";

import { agent, AgentFailed, Blob, type Client, connect, task, TaskFailed } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { hub } from "../dist/hub.js";
import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

type Made = () => unknown;

/** An error whose fields are not what they should be. */
function odd(fields: PropertyDescriptorMap): Error {
  return Object.defineProperties(new Error("x"), fields);
}

function throwing(): never {
  throw new Error("this cannot be read");
}

const trapped: ProxyHandler<object> = {
  get: throwing,
  has: throwing,
  getPrototypeOf: throwing,
  ownKeys: throwing,
  getOwnPropertyDescriptor: throwing,
};

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable(new Error("gone"), {});
  revoke();
  return proxy;
}

function circular(): Error {
  const error: Error = new Error("round");
  error.cause = error;
  return error;
}

function selfish(): AggregateError {
  const error = new AggregateError([Symbol("in it"), revoked()], "many");
  error.errors.push(error);
  return error;
}

class Problem {
  readonly status = 429;
}

class Told {
  toString(): string {
    return "told by itself";
  }
}

class Odd extends Error {
  override name = { toString: throwing } as unknown as string;
}

/** What is thrown, and the type and message that are told. */
const THROWN: Record<string, [Made, string, string | RegExp]> = {
  "a message that is an object": [() => odd({ message: { value: { code: 5 } } }), "Error", '{"code":5}'],
  "a message that is a number": [() => odd({ message: { value: 7 } }), "Error", "7"],
  "a message that is null": [() => odd({ message: { value: null } }), "Error", "Error"],
  "a message that is a symbol": [() => odd({ message: { value: Symbol("s") } }), "Error", "Symbol(s)"],
  "a message that throws": [() => odd({ message: { get: throwing } }), "Error", "Error"],
  "a name that is an object": [() => new Odd("kept"), "Odd", "kept"],
  "a name that throws": [() => odd({ name: { get: throwing } }), "Error", "x"],
  "a constructor that throws": [() => odd({ constructor: { get: throwing } }), "Error", "x"],
  "a stack that is a list": [() => odd({ stack: { value: [1, 2] } }), "Error", "x"],
  "a stack that throws": [() => odd({ stack: { get: throwing } }), "Error", "x"],
  "a code and a cause that throw": [() => odd({ code: { get: throwing }, cause: { get: throwing } }), "Error", "x"],
  "an error that is its own cause": [circular, "Error", "round"],
  "a group that holds itself": [selfish, "AggregateError", "many"],
  "a frozen error": [() => Object.freeze(new RangeError("cold")), "RangeError", "cold"],
  "an error of another realm": [() => runInNewContext('new TypeError("far")'), "TypeError", "far"],
  "half of a character": [() => new Error("a\ud800b"), "Error", "a\ufffdb"],
  "half of a character as a name": [() => odd({ name: { value: "N\udc00" } }), "N\ufffd", "x"],
  "an object with a message": [() => ({ status: 429, message: "quota used up" }), "object", "quota used up"],
  "an object with name and message": [() => ({ name: "Quota", message: "used up" }), "Quota", "used up"],
  "an object without a message": [() => ({ status: 429 }), "object", '{"status":429}'],
  "an object of a class": [() => new Problem(), "Problem", '{"status":429}'],
  "an object with words of its own": [() => new Told(), "Told", "told by itself"],
  "an object without a prototype": [() => Object.create(null), "object", /cannot be shown/],
  "an object whose conversions throw": [
    () => ({ toString: throwing, [Symbol.toPrimitive]: throwing, toJSON: throwing }),
    "object",
    /cannot be shown/,
  ],
  "a promise": [() => Promise.resolve(1), "Promise", "[object Promise]"],
  "a revoked proxy": [revoked, "object", /cannot be shown/],
  "a proxy that throws": [() => new Proxy({}, trapped), "object", /cannot be shown/],
  "a proxy of an error that throws": [() => new Proxy(new Error("in it"), trapped), "object", /cannot be shown/],
  "a function": [() => function named() {}, "function", "a function named"],
  "a proxy of a function that throws": [() => new Proxy(() => 1, trapped), "function", "a function"],
  "a class": [() => Problem, "function", "a function Problem"],
  "a symbol": [() => Symbol("alone"), "symbol", "Symbol(alone)"],
  "a bigint": [() => 12n, "bigint", "12"],
  "undefined": [() => undefined, "undefined", "undefined"],
  "null": [() => null, "null", "null"],
  "a string": [() => "just text", "string", "just text"],
  "half of a character alone": [() => "\udc00", "string", "\ufffd"],
};

const broken = task("broken", async (name: string) => {
  throw THROWN[name]?.[0]();
});
const later = task("later", { retries: 1 }, async (name: string, ctx) => {
  if (ctx.attempt > 1) throw THROWN[name]?.[0]();
  throw new Error("not yet");
});

/** How steps failed. */
async function failed(step: PromiseLike<unknown>): Promise<[type: string, reason: string]> {
  try {
    await step;
  } catch (error) {
    if (error instanceof TaskFailed) return [error.type, error.reason];
    throw error;
  }
  throw new Error("it did not fail");
}

const caller = agent("caller", async (_, name: string) => [await failed(broken(name)), await failed(later(name))]);
const thrower = agent("thrower", async (_, name: string) => {
  throw THROWN[name]?.[0]();
});

async function serving(url = "memory:"): Promise<Client> {
  const client = disposing(await connect(url));
  await client.worker({ agents: [caller, thrower, giver, ender] }).start();
  return client;
}

test.each(Object.keys(THROWN))("%s can be thrown by a task, by its retry and by an agent", async (name) => {
  const [, type, message] = THROWN[name] as [Made, string, string | RegExp];
  const told = message instanceof RegExp ? expect.stringMatching(message) : message;
  const client = await serving();
  const run = await client.start(caller, name);
  expect(await run.result({ timeoutMs: 20_000 })).toEqual([
    [type, told],
    [type, told],
  ]);
  const ended = await client.start(thrower, name);
  const error: unknown = await ended.result({ timeoutMs: 20_000 }).catch((error: unknown) => error);
  expect(error, inspect(error)).toBeInstanceOf(AgentFailed);
  const { failure } = await ended.describe();
  expect([failure?.errorType, failure?.message]).toEqual([type, told]);
});

test.each([
  ["throws", throwing],
  ["gives no text", () => [1]],
])("a prepareStackTrace that %s", async (_, prepare) => {
  const before = Error.prepareStackTrace;
  const client = await serving();
  const strange = agent("thrower", async () => {
    Error.prepareStackTrace = prepare;
    throw new Error("kept");
  });
  const own = disposing(await connect("memory:strange"));
  await own.worker({ agents: [strange] }).start();
  const run = await own.start(strange);
  try {
    await run.result({ timeoutMs: 20_000 }).catch(() => undefined);
  } finally {
    Error.prepareStackTrace = before;
  }
  expect((await run.describe()).failure?.message).toBe("kept");
  expect(await (await client.start(giver, "plain")).result({ timeoutMs: 20_000 })).toBe("plain");
});

onEveryBackend((backend) => {
  test("what no store holds as text is told all the same", async () => {
    const bad = task("bad", async () => {
      throw new Error(`nothing\u0000 and half \ud800 and much ${"x".repeat(9_000_000)}`);
    });
    const holder = agent("holder", async () => {
      const [, reason] = await failed(bad());
      throw new Error(reason);
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [holder] }).start();
    const run = await client.start(holder);
    await expect(run.result({ timeoutMs: 20_000 })).rejects.toBeInstanceOf(AgentFailed);
    const told = (await run.describe()).failure?.message;
    await client.close();
    expect(told).toMatch(/^nothing.? and half \ufffd and much x+… \(\d+ characters\)/);
  });
});

/** What has no JSON form. */
const GIVEN: Record<string, Made> = {
  "a toJSON that throws": () => new (class {
    toJSON = throwing;
  })(),
  "a getter that throws": () => Object.defineProperty({}, "field", { get: throwing, enumerable: true }),
  "an object that holds itself": () => {
    const made: { self?: unknown } = {};
    return (made.self = made);
  },
  "lists that hold themselves": () => {
    const made: unknown[] = [];
    made.push(made, made);
    return made;
  },
  "a toJSON that gives itself": () => new (class {
    toJSON(): unknown {
      return this;
    }
  })(),
  "a map of objects": () => new Map([[{}, 12n]]),
  "a symbol": () => Symbol("s"),
  "a revoked proxy in a list": () => [revoked()],
  "a proxy that throws": () => [new Proxy({}, trapped)],
  "a blob that is none": () => Object.create(Blob.prototype),
};

const give = task("give", async (name: string) => GIVEN[name]?.() ?? name);
const giveLater = task("giveLater", { retries: 1 }, async (name: string, ctx) => {
  if (ctx.attempt === 1) throw new Error("not yet");
  return GIVEN[name]?.();
});
const giver = agent("giver", async (_, name: string) => {
  if (name === "plain") return give(name);
  return [await failed(give(name)), await failed(giveLater(name))].map(([type]) => type);
});
const ender = agent("ender", async (_, name: string) => GIVEN[name]?.());

test.each(Object.keys(GIVEN))("%s cannot be a result", async (name) => {
  const client = await serving();
  const run = await client.start(giver, name);
  expect(await run.result({ timeoutMs: 20_000 })).toEqual(["NotSerializable", "NotSerializable"]);
  const ended = await client.start(ender, name);
  await until(async () => (await ended.status()) === "PAUSED");
  expect((await ended.describe()).failure?.code).toBe("NotSerializable");
});

test("agents may throw groups of errors and still be what they are", async () => {
  const grouped = agent("grouped", async () => {
    throw new AggregateError([], "nothing in it");
  });
  const client = disposing(await connect("memory:"));
  await client.worker({ agents: [grouped] }).start();
  const run = await client.start(grouped);
  await expect(run.result({ timeoutMs: 20_000 })).rejects.toMatchObject({ type: "AggregateError" });
});

test("a worker that cannot take its news does not keep others from theirs", async () => {
  const client = await serving();
  const deaf = { take: throwing };
  hub.listen(deaf);
  try {
    expect(await (await client.start(giver, "plain")).result({ timeoutMs: 20_000 })).toBe("plain");
  } finally {
    hub.forget(deaf);
  }
});

const shower = agent("shower", async (ctx) => {
  for (const [made] of Object.values(THROWN)) ctx.streamError(made());
  return ctx.waitForSignal("end");
});

test("whatever was thrown can be shown to watchers", async () => {
  const client = disposing(await connect("memory:"));
  await client.worker({ agents: [shower] }).start();
  const run = await client.start(shower);
  const told: unknown[][] = [];
  for await (const event of run.stream()) {
    if (event.type !== "data" || event.name !== "error") continue;
    const { type, message } = event.data as Record<string, unknown>;
    told.push([type, message]);
    if (told.length === Object.keys(THROWN).length) break;
  }
  const expected = Object.values(THROWN).map(([, type, message]) => [
    type,
    typeof message === "string" ? message : expect.stringMatching(message),
  ]);
  expect(told).toEqual(expected);
});
