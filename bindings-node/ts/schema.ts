// Inputs that a schema checks: zod, valibot, arktype or anything else that speaks Standard Schema.

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
    return await checkedBy(schema, value, what);
  } catch (error) {
    throw misfit(error);
  }
}

/**
 * Checks a value that is to be stored, and what will be read of it: a schema that takes a `Date` must take the string that
 * stands for it too.
 */
export async function storable(schema: StandardSchema, value: unknown, what: string): Promise<void> {
  await checked(schema, value, what);
  if (!hasForm(value)) return;
  try {
    await stored(schema, decode(encode(value)), what);
  } catch (error) {
    throw new InvalidArgument(
      `${messageOf(error)}. So it is as it is stored, where a Date, a bigint, a Map, a Set, a URL or bytes are what stands for ` +
        "them in JSON: let the schema take that too, as z.coerce.date() and z.coerce.bigint() do",
      { cause: error },
    );
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

async function checkedBy(schema: StandardSchema, value: unknown, what: string): Promise<unknown> {
  const result = await schema["~standard"].validate(value);
  if (result.issues === undefined) return result.value;
  const issues = result.issues.map(({ message, path }) => {
    const place = (path ?? []).map((step) => String(typeof step === "object" ? step.key : step)).join(".");
    return place === "" ? message : `${place}: ${message}`;
  });
  throw new InvalidArgument(`the ${what} does not fit its schema: ${issues.join("; ")}`, { context: { issues } });
}
