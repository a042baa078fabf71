// What may be declared, and what an agent may be started with: what could only go wrong later is refused where it is written.

import { InvalidArgument, typeName } from "./errors.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type AnyFunction = (...args: any[]) => unknown;

/** What an agent takes, by the parameters of its function: nothing where there is no second one. */
export type InputOf<P extends readonly unknown[]> = P extends readonly [] | readonly [unknown]
  ? null | void
  : P extends readonly [unknown, infer I]
    ? I
    : P extends readonly [unknown, (infer I)?]
      ? I | undefined
      : unknown;

/** Refuses what cannot be a task or an agent; gives the function. */
export function declarable(what: "task" | "agent", kind: string, fn: unknown): AnyFunction {
  const article = what === "task" ? "a" : "an";
  if (typeof kind !== "string" || kind === "") {
    throw new InvalidArgument(`${article} ${what} needs a kind, its name in journals`);
  }
  if (typeof fn !== "function") throw new InvalidArgument(`${what} "${kind}" needs a function`);
  if (/GeneratorFunction$/.test(fn.constructor.name)) {
    throw new InvalidArgument(`${what} "${kind}" yields, but it has one result: let it return an array`);
  }
  return fn as AnyFunction;
}

/** The names that a function had before; refuses what is no list of names. */
export function namesBefore(what: "agent" | "task", kind: string, given: unknown): readonly string[] {
  if (given === undefined) return [];
  if (!Array.isArray(given) || !given.every((name) => typeof name === "string" && name !== "")) {
    throw new InvalidArgument(`aliases of ${what} "${kind}" are the names that it had before: aliases: ["oldName"]`);
  }
  return [...new Set(given as string[])].filter((name) => name !== kind);
}

/** Refuses what `ctx.run` and `ctx.once` cannot name, or cannot call. */
export function checkStep(call: "run" | "once", name: unknown, fn: unknown): void {
  const how = `it is ctx.${call}(name, function, ...arguments)`;
  if (typeof name !== "string") {
    throw new InvalidArgument(`ctx.${call} was given ${said(name)} for the name of its step; ${how}`);
  }
  if (typeof fn === "function") return;
  if (!(fn instanceof Promise)) throw new InvalidArgument(`ctx.${call} was given ${said(fn)} for its function; ${how}`);
  // Nobody awaits it, and what it fails with is not what was wrong.
  fn.catch(() => undefined);
  throw new InvalidArgument(
    `ctx.${call} was given a promise for its function; ${how}, not what calling it gives: without the step it would have ` +
      "run again after a crash",
  );
}

/** Refuses an input that an agent's function does not take, and none where it needs one. */
export function checkInput(kind: string, fn: AnyFunction, input: unknown): void {
  if (input === undefined) {
    if (fn.length < 2) return;
    // That the type of a parameter ends with `?` is gone by now.
    throw new InvalidArgument(
      `agent "${kind}" needs an input, its second parameter, but was given none: pass it after the agent (null is one), or ` +
        "give the parameter a default",
    );
  }
  if (input === null || hasParameter(fn, 1) !== false) return;
  throw new InvalidArgument(
    `agent "${kind}" takes no input, but ${said(input)} was given as one. What says how to start it comes after the input: ` +
      "start(agent, undefined, { id }); an agent takes an input as its second parameter, after the context",
  );
}

/** What a function is given for a stored input: nothing for `null` where its parameter has a default. */
export function givenFor(fn: AnyFunction, at: 0 | 1, input: unknown): unknown {
  return input === null && fn.length <= at && hasParameter(fn, at) === true ? undefined : input;
}

/**
 * Whether a function has a parameter at a place. One with a default does not count in `length`, so the text is looked at;
 * undefined where that does not tell, as of a bound function, or `...rest`.
 */
function hasParameter(fn: AnyFunction, at: 0 | 1): boolean | undefined {
  if (fn.length > at) return true;
  const text = Function.prototype.toString.call(fn);
  if (/^(async\s+)?[\w$]+\s*=>/.test(text)) return at === 0;
  if (text.includes("[native code]") || /\barguments\b/.test(text)) return undefined;
  const count = parametersOf(text);
  return count === undefined ? undefined : count > at;
}

/** How many parameters a function's text begins with; undefined where that cannot be told. */
function parametersOf(text: string): number | undefined {
  let depth = 0;
  let count = 0;
  let isNext = true;
  for (let at = text.indexOf("("); at >= 0 && at < text.length; at++) {
    const char = text.charAt(at);
    if (depth === 1 && isNext && !/[\s/)]/.test(char)) {
      count += 1;
      isNext = false;
    }
    const isRest = depth === 1 && text.startsWith("...", at);
    if (isRest || char === "`" || (char === "/" && depth > 1)) return undefined;
    if (char === "/") {
      const end = text.startsWith("//", at) ? text.indexOf("\n", at) : text.indexOf("*/", at + 2) + 1;
      if (end <= at) return undefined;
      at = end;
    } else if (char === '"' || char === "'") {
      const rest = /^(?:\\.|.)*?(?<!\\)["']/s.exec(text.slice(at + 1));
      if (rest === null || !rest[0].endsWith(char)) return undefined;
      at += rest[0].length;
    } else if ("([{".includes(char)) depth += 1;
    else if (")]}".includes(char)) {
      depth -= 1;
      if (depth === 0) return count;
    } else if (char === "," && depth === 1) isNext = true;
  }
  return undefined;
}

/** A value in few words. */
function said(value: unknown): string {
  if (typeof value === "function") return "a function";
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {
    text = undefined;
  }
  if (text === undefined) return `a value of type ${typeName(value)}`;
  return text.length <= 80 ? text : `${text.slice(0, 77)}…`;
}
