// Values that come back as they were written, or are refused: when they are written, or when no number can hold them.

import { describe, expect, test } from "vitest";

import { agent, Blob, NotSerializable, run, task } from "../dist/index.js";
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

  const REFUSED: [string, unknown, string, RegExp][] = [
    ["a date", { a: new Date(0) }, "$.a", /toISOString/],
    ["a map", [new Map([["a", 1]])], "$[0]", /Object\.fromEntries/],
    ["a set", [new Set([1])], "$[0]", /\[\.\.\.it\]/],
    ["undefined", { a: undefined }, "$.a", /leave the key out/],
    ["undefined in an array", [1, undefined], "$[1]", /pass null/],
    ["a hole in an array", sparse, "$[0]", /undefined/],
    ["a bigint", { n: 1n }, "$.n", /bigint.*string/],
    ["not a number", [NaN], "$[0]", /finite/],
    ["infinity", [-Infinity], "$[0]", /finite/],
    ["an error", { e: new TypeError("x") }, "$.e", /TypeError.*message/],
    ["an object of a class", new (class Point { x = 1; })(), "$", /Point.*plain objects/],
    ["an object with toJSON", { price: new Money(5) }, "$.price", /Money.*toJSON\(\) gives/],
    ["a URL", [new URL("http://a/")], "$[0]", /URL.*toJSON/],
    ["a boxed number", [Object(1)], "$[0]", /Number/],
    ["bytes inside", { b: Buffer.from("a") }, "$.b", /bytes may only be a whole value/],
    ["other typed arrays", new Float32Array(2), "$", /Array\.from/],
    ["a buffer of bytes", [new ArrayBuffer(2)], "$[0]", /ArrayBuffer/],
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

test("an await delivers the sign of zero and refuses what would change", async () => {
  const zero = task("zero", async () => -0);
  const priced = task("priced", async () => ({ price: new Money(5) }));
  const taker = agent("taker", async () => {
    const refused = await priced().catch((error: { type: string }) => error.type);
    return [Object.is(await zero(), -0), refused];
  });
  expect(await run(taker, undefined, { url: fileUrl() })).toEqual([true, "NotSerializable"]);
});
