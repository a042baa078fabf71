// The fields of a question, from its JSON Schema: plain ones each by its kind, anything deeper as JSON.
import { asObject, asText } from "./content.js";

/** Has what is filled in, by the name of the field. */
export type FormValues = Readonly<Record<string, string | boolean>>;

/** Is a field of a form. */
export interface Field {
  readonly name: string;
  readonly label: string;
  readonly hint: string | null;
  readonly kind: "text" | "number" | "integer" | "boolean" | "choice" | "json";
  readonly choices: readonly string[];
  readonly isRequired: boolean;
  readonly usual: unknown;
}

/** The fields that a schema asks for, in its order. */
export function fieldsOf(schema: unknown): readonly Field[] {
  const properties = asObject(asObject(schema)?.["properties"]) ?? {};
  const required = asObject(schema)?.["required"];
  return Object.entries(properties).map(([name, value]) => {
    const said = asObject(value) ?? {};
    const choices = Array.isArray(said["enum"]) ? said["enum"].map(String) : [];
    const type = Array.isArray(said["type"]) ? said["type"].find((each) => each !== "null") : said["type"];
    const kind = choices.length ? "choice" : type === "number" || type === "integer" || type === "boolean" ? type : type === "string" ? "text" : "json";
    return {
      name,
      label: asText(said["title"]) ?? name,
      hint: asText(said["description"]),
      kind,
      choices,
      isRequired: Array.isArray(required) && required.includes(name),
      usual: said["default"],
    };
  });
}

/** The values of a form that nobody has filled in. */
export function emptyValues(schema: unknown): FormValues {
  return Object.fromEntries(
    fieldsOf(schema).map((field) => {
      if (field.kind === "boolean") return [field.name, field.usual === true];
      const text = field.usual === undefined ? "" : typeof field.usual === "string" ? field.usual : JSON.stringify(field.usual);
      return [field.name, text];
    }),
  );
}

/** What a filled-in form says, or what is wrong with it. */
export function readValues(schema: unknown, values: FormValues): { value: Record<string, unknown> } | { error: string } {
  const value: Record<string, unknown> = {};
  for (const field of fieldsOf(schema)) {
    const given = values[field.name] ?? "";
    if (typeof given === "boolean") {
      value[field.name] = given;
      continue;
    }
    if (given.trim() === "" && field.kind !== "text") {
      if (field.isRequired) return { error: `${field.label} is missing.` };
      continue;
    }
    if (field.kind === "number" || field.kind === "integer") {
      const number = Number(given);
      if (!Number.isFinite(number) || (field.kind === "integer" && !Number.isInteger(number))) return { error: `${field.label} is no ${field.kind === "integer" ? "whole number" : "number"}.` };
      value[field.name] = number;
    } else if (field.kind === "json") {
      try {
        value[field.name] = JSON.parse(given);
      } catch {
        return { error: `${field.label} is no JSON.` };
      }
    } else if (given !== "" || field.isRequired) value[field.name] = given;
  }
  return { value };
}
