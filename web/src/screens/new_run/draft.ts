// A run that is about to be started: what the form says, as the body of the request, and as programs in three languages.

export interface Draft {
  readonly kind: string;
  readonly definition: string;
  readonly prompt: string;
  readonly systemPrompt: string;
  readonly models: readonly string[];
  readonly tools: readonly string[];
  readonly workingDirectory: string;
  readonly thinking: string;
  readonly maxTurns: string;
  readonly maxTokens: string;
  readonly maxCost: string;
  readonly queue: string;
  readonly machine: string;
  readonly id: string;
  /** The input as JSON, instead of a prompt and what stands around it. */
  readonly input: string;
  readonly isJson: boolean;
}

export const emptyDraft: Draft = {
  kind: "react-agent",
  definition: "",
  prompt: "",
  systemPrompt: "",
  models: [],
  tools: [],
  workingDirectory: "",
  thinking: "",
  maxTurns: "",
  maxTokens: "",
  maxCost: "",
  queue: "",
  machine: "",
  id: "",
  input: "",
  isJson: false,
};

export type Body = Readonly<Record<string, unknown>>;

/** The body of the request; throws a `SyntaxError` where the input is no JSON. */
export function bodyOf(draft: Draft): Body {
  const config: Record<string, unknown> = {};
  if (draft.thinking) config["thinking"] = draft.thinking;
  if (draft.maxTurns) config["maxTurns"] = Number(draft.maxTurns);
  const budget = { ...(draft.maxTokens && { maxTokens: Number(draft.maxTokens) }), ...(draft.maxCost && { maxCostUsd: Number(draft.maxCost) }) };
  const common = {
    ...(draft.id.trim() && { id: draft.id.trim() }),
    ...(draft.machine ? { machine: draft.machine } : draft.queue.trim() && { queue: draft.queue.trim() }),
    ...(Object.keys(budget).length && { budget }),
  };
  if (draft.definition) {
    return { agentDefinitionId: draft.definition, ...(draft.prompt && { userPrompt: draft.prompt }), ...(Object.keys(config).length && { config }), ...common };
  }
  if (draft.isJson) return { kind: draft.kind.trim(), ...(draft.input.trim() && { input: JSON.parse(draft.input) as unknown }), ...common };
  const models = draft.models.map((reference) => {
    const slash = reference.indexOf("/");
    return { provider: reference.slice(0, slash), modelId: reference.slice(slash + 1) };
  });
  const said = {
    ...(draft.systemPrompt && { systemPrompt: draft.systemPrompt }),
    ...(draft.prompt && { userPrompt: draft.prompt }),
    ...(draft.tools.length && { tools: draft.tools }),
    ...(Object.keys(config).length && { config }),
  };
  // A working directory is a part of the agent's input that the request has no name for; then all of it is said as input.
  if (draft.workingDirectory.trim()) {
    return { kind: draft.kind.trim(), input: { ...said, ...(models[0] && { model: models[0] }), workingDirectory: draft.workingDirectory.trim() }, ...common };
  }
  return { kind: draft.kind.trim(), ...said, ...(models.length && { models }), ...common };
}

export function asCurl(body: Body, origin: string, org: string): string {
  const json = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl ${origin}/api/orgs/${org}/agent-executions \\
  -H "Authorization: Bearer $FLOVYN_TOKEN" \\
  -H 'Content-Type: application/json' \\
  -d '${json}'
`;
}

/** JSON as a value of Python. */
function python(value: unknown, indent = ""): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return JSON.stringify(value);
  const inner = `${indent}    `;
  if (Array.isArray(value)) return value.length ? `[\n${value.map((each) => `${inner}${python(each, inner)},\n`).join("")}${indent}]` : "[]";
  const members = Object.entries(value as object);
  return members.length ? `{\n${members.map(([key, each]) => `${inner}${JSON.stringify(key)}: ${python(each, inner)},\n`).join("")}${indent}}` : "{}";
}

/** What a client starts: the kind, its input, and the options; a definition is told over REST alone. */
function startOf(body: Body): { kind: string; input: unknown; options: Record<string, unknown> } | null {
  if (typeof body["kind"] !== "string") return null;
  const { kind, input, id, queue, machine, budget, ...said } = body;
  return {
    kind,
    input: input ?? (Object.keys(said).length ? said : null),
    options: { ...(id !== undefined && { id }), ...(queue !== undefined && { queue }), ...(machine !== undefined && { machine }), ...(budget !== undefined && { budget }) },
  };
}

export function asPython(body: Body): string {
  const start = startOf(body);
  if (!start) return "# Predefined agents are started over REST: see curl.\n";
  const snake: Readonly<Record<string, string>> = { maxTokens: "max_tokens", maxCostUsd: "max_cost_usd" };
  const indent = " ".repeat(12);
  const given = Object.entries(start.options).map(([name, value]) => {
    const said = name === "budget" ? Object.fromEntries(Object.entries(value as object).map(([key, each]) => [snake[key] ?? key, each])) : value;
    return `${indent}${name}=${python(said, indent)},\n`;
  });
  return `import asyncio
import flovyn

async def main() -> None:
    # FLOVYN_URL and FLOVYN_TOKEN say which server.
    async with flovyn.connect() as client:
        run = await client.start(
${indent}${JSON.stringify(start.kind)},
${indent}${python(start.input, indent)},
${given.join("")}        )
        print(await run.result())

asyncio.run(main())
`;
}

export function asTypeScript(body: Body): string {
  const start = startOf(body);
  if (!start) return "// Predefined agents are started over REST: see curl.\n";
  const options = Object.keys(start.options).length ? `, ${JSON.stringify(start.options, null, 2)}` : "";
  return `import { connect } from "@flovyn/sdk";

// FLOVYN_URL and FLOVYN_TOKEN say which server.
const client = await connect();
const run = await client.start(${JSON.stringify(start.kind)}, ${JSON.stringify(start.input, null, 2)}${options});
console.log(await run.result());
`;
}
