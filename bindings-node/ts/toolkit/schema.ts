// JSON Schemas of what tasks take, which is what a model is shown of them.

import { InvalidArgument, messageOf } from "../errors.js";
import type { StandardSchema } from "../schema.js";

/** A JSON Schema. */
export type JsonSchema = { readonly [keyword: string]: unknown };

/** What describes arguments: zod, any other schema that has a JSON form, or a JSON Schema itself. */
export type ArgumentsSchema = StandardSchema | JsonSchema;

/** The arguments of a tool as a model is shown them, and the one of them that is the task's whole input, if it is one. */
export interface Parameters {
  readonly schema: JsonSchema;
  readonly argument?: string;
}

/** The dialect that is asked for. */
const TARGET = "draft-2020-12";

/** What a schema may bring to tell its JSON form: the Standard JSON Schema of zod and others, or a method of its own. */
interface Convertible {
  readonly "~standard": {
    readonly vendor?: string;
    readonly jsonSchema?: { readonly input: (options: { target: string }) => JsonSchema };
  };
  readonly toJSONSchema?: (options: { io: "input" }) => JsonSchema;
  readonly toJsonSchema?: () => JsonSchema;
}

/** The JSON Schema of values that a schema takes; `what` names it in errors. */
export function jsonSchemaOf(schema: ArgumentsSchema, what: string): JsonSchema {
  if (!("~standard" in schema)) return schema;
  const given = schema as unknown as Convertible;
  const { vendor = "unknown", jsonSchema } = given["~standard"];
  let made: JsonSchema | undefined;
  try {
    if (jsonSchema !== undefined) made = jsonSchema.input({ target: TARGET });
    else if (given.toJSONSchema !== undefined) made = given.toJSONSchema({ io: "input" });
    else if (given.toJsonSchema !== undefined) made = given.toJsonSchema();
  } catch (error) {
    throw new InvalidArgument(`the ${what} has no JSON Schema: ${messageOf(error)}; give parameters: a JSON Schema`, {
      cause: error,
    });
  }
  if (made === undefined) {
    throw new InvalidArgument(
      `the ${what} is a schema of "${vendor}" that does not tell its JSON form; give parameters: a JSON Schema`,
    );
  }
  const { $schema: _dialect, ...plain } = made;
  return plain;
}

/** The parameters of a tool whose task takes what a schema says. A model gives an object, so another value gets a name. */
export function parametersOf(schema: ArgumentsSchema, what: string): Parameters {
  const found = jsonSchemaOf(schema, what);
  if (found["type"] === "object" || found["properties"] !== undefined) return { schema: { type: "object", ...found } };
  const { $defs, ...input } = found;
  const whole = { type: "object", properties: { input }, required: ["input"], additionalProperties: false };
  return { schema: $defs === undefined ? whole : { ...whole, $defs }, argument: "input" };
}

/** What a schema says of itself. */
export function descriptionOf(schema: ArgumentsSchema | undefined): string | undefined {
  const said = schema === undefined ? undefined : (schema as { description?: unknown }).description;
  return typeof said === "string" && said !== "" ? said : undefined;
}
