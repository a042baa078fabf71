// Values that come back as they were written, or are refused: when they are written, or when no number can hold them.

import { readFileSync } from "node:fs";

import { describe, expect, test } from "vitest";
import { z } from "zod";

import { agent, Blob, connect, NotSerializable, run, task } from "../dist/index.js";
import { check } from "../dist/testing/index.js";
import { UnreadableState } from "../dist/agent.js";
import { decode, encode, json } from "../dist/serde.js";
import { fileUrl } from "./support.js";

function refusalOf(call: () => unknown): NotSerializable {
  try {
    call();
  } catch (error) {
    expect(error).toBeInstanceOf(NotSerializable);
    return error as NotSerializable;
  }
  throw new Error("nothing was refused");
}

class Money {
  constructor(readonly cents: number) {}
  toJSON(): string {
    return `${this.cents}`;
  }
}

class Stack<T> extends Array<T> {}

const sparse: unknown[] = [];
sparse[2] = 1;

const BACK: Record<string, unknown> = {
  "numbers": [0, -0, 1.5, -1e-7, 1e21, 2 ** 53, 2 ** 64, Number.MAX_VALUE, Number.MIN_VALUE, Number.MIN_SAFE_INTEGER],
  "text": ["", "é\u2028\u{1f600}\u0000\u001f\"\\/", "12345678901234567890"],
  "keys": { "": 1, "ü": 2, "a b": 3, "12345678901234567": "90071992547409930", constructor: 4 },
  "a key called __proto__": JSON.parse('{"__proto__": {"a": 1}}'),
  "emptiness": [null, [], {}, [[]], [{}]],
  "what getters give": {
    get now() {
      return 1;
    },
  },
};

describe("values", () => {
  test.each(Object.entries(BACK))("%s come back as they were", (_, value) => {
    const back = decode(encode(value));
    // `toStrictEqual` tells -0 from 0.
    expect(back).toStrictEqual(value);
    expect(encode(back)).toBe(encode(value));
  });

  test("objects without a prototype come back with what they hold", () => {
    expect(decode(encode(Object.assign(Object.create(null), { a: 1 })))).toEqual({ a: 1 });
  });

  test("a negative zero has its sign in every language", () => {
    expect(encode(-0)).toBe("-0.0");
    expect(Object.is(decode("-0.0"), -0)).toBe(true);
  });

  const FORMS: [string, unknown, string][] = [
    ["a date", new Date("2026-01-02T03:04:05Z"), '"2026-01-02T03:04:05Z"'],
    ["a date with milliseconds", [new Date("2026-01-02T03:04:05.120Z")], '["2026-01-02T03:04:05.120000Z"]'],
    ["a map", new Map<string, unknown>([["b", 1], ["a", new Map([["c", 2n]])]]), '{"a":{"c":"2"},"b":1}'],
    ["a set of numbers", new Set([10, 9, -1, 0.5]), "[-1,0.5,9,10]"],
    ["a set of strings", new Set(["b", "a!", "a", "\u{1f600}", "\ufb33"]), '["a","a!","b","\u{1f600}","\ufb33"]'],
    ["a set of all sorts", new Set([{ a: 1 }, [2], null, true, 1, "x"]), '["x",1,[2],null,true,{"a":1}]'],
    ["a bigint", { n: 2n ** 70n }, '{"n":"1180591620717411303424"}'],
    ["a URL", [new URL("http://a/ b")], '["http://a/%20b"]'],
    ["bytes inside", { a: Buffer.from([251, 255]), b: new Uint8Array([1, 2, 3]).subarray(1) }, '{"a":"+/8=","b":"AgM="}'],
    ["a buffer of bytes", [new Uint8Array([1]).buffer], '["AQ=="]'],
    ["undefined in a field", { b: 1, a: undefined, c: { d: undefined } }, '{"b":1,"c":{}}'],
    ["undefined in a map", new Map([["a", undefined]]), "{}"],
  ];

  test.each(FORMS)("%s stands in its one form", (_, value, text) => {
    expect(json(value)).toBe(text);
  });

  const REFUSED: [string, unknown, string, RegExp][] = [
    ["an invalid date", { a: new Date(NaN) }, "$.a", /invalid Date.*pass null/],
    ["a date before the year 1", [new Date(-1e14)], "$[0]", /year -1199.*pass a number/],
    ["a map whose keys are no strings", [new Map([[1, "a"]])], "$[0]", /key of type number.*list of pairs/],
    ["what is in a map", { a: new Map([["b", [NaN]]]) }, "$.a.b[0]", /finite/],
    ["what is in a set", { a: new Set([1, new Set([NaN])]) }, "$.a", /finite/],
    ["a class of maps", [new (class Index extends Map {})()], "$[0]", /Index/],
    ["a class of dates", [new (class Day extends Date {})()], "$[0]", /Day/],
    ["undefined in an array", [1, undefined], "$[1]", /pass null/],
    ["a hole in an array", sparse, "$[0]", /undefined/],
    ["not a number", [NaN], "$[0]", /finite/],
    ["infinity", [-Infinity], "$[0]", /finite/],
    ["an error", { e: new TypeError("x") }, "$.e", /TypeError.*message/],
    ["an object of a class", new (class Point { x = 1; })(), "$", /Point.*plain objects/],
    ["an object with toJSON", { price: new Money(5) }, "$.price", /Money.*toJSON\(\) gives/],
    ["a boxed number", [Object(1)], "$[0]", /Number/],
    ["a large blob inside", { b: new Blob(Buffer.alloc(16 * 1024 * 1024 + 1)) }, "$.b", /at most 16777216 bytes; pass it alone/],
    ["other typed arrays", new Float32Array(2), "$", /Array\.from/],
    ["a regular expression", [/a/], "$[0]", /RegExp/],
    ["an array of a class", { a: Stack.from([1]) }, "$.a", /Stack.*come back as an array/],
    ["a match", { m: "abc".match(/b/) }, "$.m", /field index, which would be lost/],
    ["a symbol as a key", { a: { [Symbol("s")]: 1 } }, "$.a", /symbol as a key, which would be lost/],
    ["an inherited object", Object.create({ a: 1 }), "$", /plain objects/],
    ["a lone surrogate", ["\ud800"], "$[0]", /surrogate/],
    ["a lone surrogate in a key", { "\udc00": 1 }, "$", /surrogate/],
    ["a function", { f: () => 1 }, "$.f", /function/],
    ["a symbol", [Symbol("s")], "$[0]", /symbol/],
    ["a promise", { p: Promise.resolve(1) }, "$.p", /Promise/],
    ["a proxy of a class", [new Proxy(new Money(1), {})], "$[0]", /Money/],
  ];

  test.each(REFUSED)("%s is refused with its place", (_, value, path, why) => {
    const refused = refusalOf(() => json(value));
    expect(refused.path).toBe(path);
    expect(refused.message).toMatch(why);
    expect(refused.message).toContain(`at ${path} `);
  });

  test("bytes and blobs are whole values", () => {
    expect(encode(new Uint8Array([1, 2]).subarray(1))).toEqual(Buffer.from([2]));
    expect(encode(new Blob(Buffer.from("a")))).toBeDefined();
    expect(encode(undefined)).toBe("null");
    // Inside of one they are text.
    expect(json({ b: new Blob(Buffer.from([0xfb, 0xff])) })).toBe('{"b":"+/8="}');
  });
});

describe("the vectors of all languages", () => {
  interface Vector {
    name: string;
    json: string;
    typescript?: string;
  }
  const file = new URL("../../tests/vectors/values.json", import.meta.url);
  const vectors = JSON.parse(readFileSync(file, "utf8")) as Vector[];

  test.each(vectors.map((vector) => [vector.name, vector] as const))("%s", (_, { json: text, typescript }) => {
    if (typescript !== undefined) {
      // eslint-disable-next-line @typescript-eslint/no-implied-eval
      const make = new Function(`return (${typescript});`) as () => unknown;
      expect(json(make())).toBe(text);
    }
    // What another language wrote is written again as it was, where a number can hold it.
    if (text.startsWith('"') || !/\d{17}/.test(text)) expect(json(decode(text))).toBe(text);
  });
});

describe("integers of other languages", () => {
  const LOST: [string, string, string][] = [
    ["9007199254740993", "$", "9007199254740993"],
    ["-9007199254740993", "$", "-9007199254740993"],
    ['{"ids":[1,{"b c":12345678901234567890}]}', '$.ids[1]["b c"]', "12345678901234567890"],
    ['{"a":"x, 9007199254740993","b":[[],"\\"",[0,18446744073709551615]]}', "$.b[2][1]", "18446744073709551615"],
    ['[{"a":1},{"a":2 , "b" : 9007199254740993 }]', "$[1].b", "9007199254740993"],
  ];

  test.each(LOST)("%s is refused, for a number would change it", (text, path, digits) => {
    const refused = refusalOf(() => decode(text));
    expect(refused.path).toBe(path);
    expect(refused.message).toContain(`the integer ${digits}, of which a number loses digits`);
  });

  test.each([
    "9007199254740992",
    "18446744073709551616",
    "18446744073709552000",
    "1e300",
    "123456789012345678.5",
    '["9007199254740993"]',
    '{"9007199254740993":1e20,"x":[100000000000000000000]}',
  ])("%s is read", (text) => {
    expect(decode(text)).toEqual(JSON.parse(text));
  });
});

describe("a stored state", () => {
  const unreadable = (call: () => unknown): UnreadableState => {
    try {
      call();
    } catch (error) {
      expect(error).toBeInstanceOf(UnreadableState);
      expect((error as UnreadableState).code).toBe("WrongStateType");
      expect((error as UnreadableState).message).toMatch(/resume the run$/);
      return error as UnreadableState;
    }
    throw new Error("it was read");
  };
  const made = (migrate?: (stored: unknown) => { n: number }) =>
    agent("keeper", { state: () => ({ n: 0 }), ...(migrate && { migrate }) }, async () => 1);

  test("is told where its migration throws", () => {
    const cause = new RangeError("no nn in it");
    const failing = made(() => {
      throw cause;
    });
    const told = unreadable(() => failing.initialState([{ n: 1 }]));
    expect(told.message).toContain('agent "keeper" cannot be read: migrate threw RangeError: no nn in it');
    expect(told.cause).toBe(cause);
    expect(failing.initialState(undefined)).toEqual({ n: 0 });
  });

  test("is told where its migration gives a promise", () => {
    const late = made((async () => Promise.reject(new Error("late"))) as never);
    expect(unreadable(() => late.initialState([{ n: 1 }])).message).toContain("promise");
  });

  test("is told where a number cannot hold it", () => {
    expect(unreadable(() => made().readState('{"n":9007199254740993}')).message).toContain("$.n is the integer");
    expect(made().readState('{"n":5}')).toEqual({ n: 5 });
    expect(made().readState(undefined)).toEqual({ n: 0 });
    expect(made((old) => ({ n: (old as { m: number }).m })).readState('{"m":5}')).toEqual({ n: 5 });
  });
});

test("an await delivers what stands for a value from the first", async () => {
  const given = task("given", async () => ({
    at: new Date(0),
    ids: new Set([2n, 1n]),
    more: new Map([["raw", new Uint8Array([251, 255])]]),
    nothing: undefined,
  }));
  const echo = task("echo", async (value: unknown) => value);
  const taker = agent("values", async (ctx, from: unknown) => {
    const signal = await ctx.waitForSignal("go");
    return [await given(), await echo(new Date(1)), await ctx.once("when", () => new Date(2)), from, signal];
  });
  const stands = { at: "1970-01-01T00:00:00Z", ids: ["1", "2"], more: { raw: "+/8=" } };
  const expected = [stands, "1970-01-01T00:00:00.001000Z", "1970-01-01T00:00:00.002000Z", ["1970-01-01T00:00:00Z"], { a: ["x"] }];
  const signals = [["go", { a: new Set(["x"]) }]] as const;
  const { outcome } = await check(taker, [new Date(0)], { signals });
  expect(outcome).toEqual(expected);
});

test("an await delivers the sign of zero and refuses what would change", async () => {
  const zero = task("zero", async () => -0);
  const priced = task("priced", async () => ({ price: new Money(5) }));
  const taker = agent("taker", async () => {
    const refused = await priced().catch((error: { type: string }) => error.type);
    return [Object.is(await zero(), -0), refused];
  });
  expect(await run(taker, undefined, { url: fileUrl() })).toEqual([true, "NotSerializable"]);
});

test("a schema makes values of what stands for them, and has to take it", async () => {
  const Order = z.object({ at: z.coerce.date(), total: z.coerce.bigint(), tags: z.array(z.string()).transform((tags) => new Set(tags)) });
  const day = task("day", { input: z.object({ at: z.coerce.date() }) }, async ({ at }) => at.getUTCDate());
  const taker = agent("orders", { input: Order, signals: { due: z.coerce.date() } }, async (ctx, order) => {
    const due = await ctx.waitForSignalAs("due", z.coerce.date());
    return [await day({ at: order.at }), order.total * 2n, order.tags.has("a"), due.getTime()];
  });
  const client = await connect(fileUrl());
  try {
    await client.worker({ agents: [taker] }).start();
    const handle = await client.start(taker, { at: new Date("2026-01-31T12:00:00Z"), total: 2n ** 70n, tags: ["a"] });
    await handle.signal("due", new Date(5));
    expect(await handle.result({ timeoutMs: 20_000 })).toEqual([31, "2361183241434822606848", true, 5]);
    const strict = agent("strict", { input: z.object({ at: z.date() }), signals: { due: z.date() } }, async () => 1);
    await expect(client.start(strict, { at: new Date(0) })).rejects.toThrow(/at: .*date.*as it is stored.*z\.coerce\.date\(\)/s);
    const loose = await client.start("strict", { at: "x" });
    const typed = await client.handle(loose.id, strict);
    await expect(typed.signal("due", new Date(0))).rejects.toThrow(/signal "due".*z\.coerce\.date\(\)/s);
  } finally {
    await client.close();
  }
});

test("a state may hold nothing that would come back as what stands for it", async () => {
  const told: string[] = [];
  const keeper = agent("keeper", { state: (): unknown => ({}) }, async (ctx) => {
    for (const state of [{ a: [1, new Date(0)] }, { n: { b: 1n } }, new Set([1]), { m: new Map([["a", new Date(0)]]) }]) {
      try {
        await ctx.checkpoint(state);
      } catch (error) {
        told.push((error as NotSerializable).message);
      }
    }
    await ctx.checkpoint({ a: "1970-01-01T00:00:00Z", b: undefined });
    return ctx.state;
  });
  expect(await run(keeper, undefined, { url: fileUrl() })).toEqual({ a: "1970-01-01T00:00:00Z" });
  const places = ["$.a[1] is Date", "$.n.b is a bigint", "$ is Set", "$.m is Map"];
  expect(told).toEqual(places.map((place) => expect.stringContaining(`at ${place}, which would come back as what stands for it`)));
});

test("the types of what is delivered are those of what stands for it", async () => {
  const given = task("given", async (_: undefined) => ({ at: new Date(0), ids: new Set([1n]), by: new Map([["a", 1]]), n: 1 }));
  const raw = task("raw", async () => new Uint8Array([1]));
  const own = task("own", { serializer: { dump: () => 0, load: () => new Date(0) } }, async () => new Date(0));
  const typed = agent("typed", async (ctx) => {
    const { at, ids, by, n } = await given();
    const once: string = await ctx.once("when", () => new Date(0));
    const bytes: Uint8Array = await raw();
    const date: Date = await own();
    return [at.slice(0, 4), ids.map((id) => id.length), Object.keys(by), n + 1, once.length, bytes.length, date.getTime()] as const;
  });
  const [year, lengths]: readonly [string, number[], ...unknown[]] = await run(typed, undefined, { url: fileUrl() });
  expect([year, lengths]).toEqual(["1970", [1]]);
});

/** Numbers from 0 up to a bound, the same in every run. */
function chance(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function anything(below: (bound: number) => number, depth: number): unknown {
  const text = (): string => ["", "a", "a!", "é\u2028", "\u{1f600}", "\ufb33", "10", '"'][below(8)] as string;
  const leaves: (() => unknown)[] = [
    text,
    () => below(1000) / 8 - 60,
    () => -0,
    () => below(2) === 0,
    () => null,
    () => BigInt(below(2 ** 31)) ** 4n,
    () => new Date(below(2 ** 31) * 1000 + below(2)),
    () => new URL(`https://a.example/${below(9)}`),
    () => Buffer.from(text()),
  ];
  const many = <T>(make: () => T): T[] => Array.from({ length: below(5) }, make);
  const inner = (): unknown => anything(below, depth - 1);
  const nested: (() => unknown)[] = [
    () => many(inner),
    () => new Set(many(inner)),
    () => new Map(many(() => [text(), inner()])),
    () => ({ ...Object.fromEntries(many(() => [text(), inner()])), nothing: undefined }),
  ];
  const makers = depth === 0 ? leaves : [...leaves, ...nested, ...nested];
  return (makers[below(makers.length)] as () => unknown)();
}

/** The same value with its sets and objects in another order. */
function shuffled(value: unknown): unknown {
  if (value instanceof Set) return new Set([...value].reverse().map(shuffled));
  if (value instanceof Map) return new Map([...value].reverse().map(([name, item]) => [name, shuffled(item)]));
  if (Array.isArray(value)) return value.map(shuffled);
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).reverse().map(([name, item]) => [name, shuffled(item)]));
}

test("what stands for any value stands for itself, in whatever order its sets are", () => {
  for (let seed = 1; seed <= 2000; seed++) {
    const value = [anything(chance(seed), 3)];
    const text = json(value);
    expect(json(decode(text)), `seed ${seed}`).toBe(text);
    expect(json(shuffled(value)), `seed ${seed}`).toBe(text);
  }
});
