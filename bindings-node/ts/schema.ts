// Values that a schema checks: zod, valibot, arktype or anything else that speaks Standard Schema.

import { InvalidArgument, messageOf, misfit } from "./errors.js";
import { hasForm } from "./forms.js";
import { decode, encode } from "./serde.js";

/** The interface of https://standardschema.dev, version 1, as far as it is used here. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What a schema says of a value. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** What a schema finds wrong. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** Checks a value and gives what the schema makes of it; `InvalidArgument` names every issue. */
export async function checked(schema: StandardSchema, value: unknown, what: string): Promise<unknown> {
  try {
    return madeOf(await schema["~standard"].validate(value), what);
  } catch (error) {
    throw misfit(error);
  }
}

/** The same by a schema that answers at once, as one for results does: an await of a step gives what is there. */
export function checkedAtOnce(schema: StandardSchema, value: unknown, what: string): unknown {
  try {
    const result = schema["~standard"].validate(value);
    if (!isLater(result)) return madeOf(result, what);
    result.then(undefined, () => undefined);
  } catch (error) {
    throw misfit(error);
  }
  throw misfit(
    new InvalidArgument(`the schema for the ${what} answers with a promise; use one without asynchronous rules, and check those in the function`),
  );
}

/**
 * Checks a value that is to be stored, and what will be read of it: a schema that takes a `Date` must take the string that
 * stands for it too.
 */
export async function storable(schema: StandardSchema, value: unknown, what: string): Promise<void> {
  await checked(schema, value, what);
  if (!hasForm(value)) return;
  await stored(schema, decode(encode(value)), what).catch((error: unknown) => Promise.reject(asStored(error)));
}

/** The same by a schema that answers at once. */
export function storableAtOnce(schema: StandardSchema, value: unknown, what: string): void {
  checkedAtOnce(schema, value, what);
  if (!hasForm(value)) return;
  try {
    storedAtOnce(schema, decode(encode(value)), what);
  } catch (error) {
    throw asStored(error);
  }
}

/** Checks a value that was stored: what was left out is stored as `null`, and a schema may have a default for it. */
export async function stored(schema: StandardSchema, value: unknown, what: string): Promise<unknown> {
  try {
    return await checked(schema, value, what);
  } catch (error) {
    if (value !== null) throw error;
    return checked(schema, undefined, what).catch(() => Promise.reject(error as Error));
  }
}

/** The same by a schema that answers at once. */
export function storedAtOnce(schema: StandardSchema, value: unknown, what: string): unknown {
  try {
    return checkedAtOnce(schema, value, what);
  } catch (error) {
    if (value !== null) throw error;
    try {
      return checkedAtOnce(schema, undefined, what);
    } catch {
      throw error;
    }
  }
}

function isLater<T>(result: T | Promise<T>): result is Promise<T> {
  return typeof (result as { then?: unknown }).then === "function";
}

function asStored(error: unknown): InvalidArgument {
  return new InvalidArgument(
    `${messageOf(error)}. So it is as it is stored, where a Date, a bigint, a Map, a Set, a URL or bytes are what stands for ` +
      "them in JSON: let the schema take that too, as z.coerce.date() and z.coerce.bigint() do",
    { cause: error },
  );
}

function madeOf(result: SchemaResult<unknown>, what: string): unknown {
  if (result.issues === undefined) return result.value;
  const issues = result.issues.map(({ message, path }) => {
    const place = (path ?? []).map((step) => String(typeof step === "object" ? step.key : step)).join(".");
    return place === "" ? message : `${place}: ${message}`;
  });
  throw new InvalidArgument(`the ${what} does not fit its schema: ${issues.join("; ")}`, { context: { issues } });
}
