// What the toolkit may use in a process: providers, MCP servers, directories, the sandbox.

import { resolve } from "node:path";

/** The wires that models are spoken to on. */
export type Api = "anthropic-messages" | "openai-chat" | "openai-responses";

/** A provider of models. One that is known (`anthropic`, `openai`, `openrouter`, …) needs no `api` and no `baseUrl`. */
export interface Provider {
  /** The wire it speaks. */
  api?: Api;
  /** Its address, as its own clients take it. */
  baseUrl?: string;
  /** Its key. */
  key?: string;
  /** The environment variable that holds its key, in place of `key`. */
  keyVariable?: string;
  /** More headers to send. */
  headers?: Record<string, string>;
  /** Whether it can force answers into the form of a JSON Schema; else a model gives them by a call. */
  structured?: boolean;
  /** Whether its models take images, where Flovyn does not know them; else a line of text stands for each. */
  images?: boolean;
}

/** An MCP server, as MCP clients write it: a command to start, or an address. */
export interface McpServer {
  command?: string;
  args?: readonly string[];
  env?: Record<string, string>;
  url?: string;
  headers?: Record<string, string>;
  /** How long it may be silent in a call, in milliseconds. */
  timeout?: number;
  /** How long it may take to become ready, in milliseconds. */
  startupTimeout?: number;
  /** Whether and how it may ask a model; a person is asked first unless `approvals` is `"allow"`. It may not unless given. */
  sampling?: { model: string; maxCalls?: number; maxTokens?: number; approvals?: "ask" | "allow" };
  [more: string]: unknown;
}

/** What a worker lends to agents: models, host tools by name, MCP servers, and where tools work. */
export interface Toolkit {
  /** Host and MCP tools by name; `mcp__SERVER__*` is all of a server. Those of the host are served as agents ask for them. */
  tools?: readonly string[];
  /** Where tools work unless a run says otherwise; the directory of the process unless given. */
  workingDirectory?: string;
  /** Other directories that runs may name. */
  roots?: readonly string[];
  /** Whether commands run confined; they do unless this is `false`. */
  sandbox?: boolean;
  /** Whether confined commands may use the network; they may not unless given. */
  network?: boolean;
  /** Hosts that `fetch` may ask without a person being asked, and hosts that it may ask although their addresses are not public. */
  fetch?: { readonly allowedHosts?: readonly string[]; readonly privateHosts?: readonly string[] };
  /** Directories beside the working directory, whose files tools and commands may read and write. */
  addDirs?: readonly string[];
  /** Variables that commands see beside the usual ones; `NAME*` stands for all that begin so. */
  variables?: readonly string[];
  /** The package caches of confined commands: their own unless given, or those of the user. */
  caches?: "private" | "user";
  /** MCP servers by name; their tools are `mcp__SERVER__TOOL`. */
  mcpServers?: Readonly<Record<string, McpServer>>;
  /** Providers by name, beside those whose keys are in the environment or in place of them. */
  providers?: Readonly<Record<string, Provider>>;
  /** The folder for records of calls that change something; one of the user's that belongs to the store unless given. */
  records?: string;
}

/** @internal The scripted models of tests that this process serves, as providers. */
export const scripted = new Map<string, Provider>();

/** @internal A description as the kit reads it. Its paths mean the same when the process has moved. */
export function described(given: Toolkit): Record<string, unknown> {
  const { tools, workingDirectory, roots, sandbox, network, addDirs, variables, caches } = given;
  const { fetch, mcpServers, providers, records } = given;
  return {
    tools,
    workingDirectory: absolute(workingDirectory),
    roots: roots?.map((root) => resolve(root)),
    sandbox,
    network,
    fetch,
    addDirs: addDirs?.map((folder) => resolve(folder)),
    variables,
    caches,
    mcpServers,
    providers,
    records: absolute(records),
  };
}

/** @internal A path from the root. */
export function absolute(path: string | undefined): string | undefined {
  return path === undefined ? undefined : resolve(path);
}

/** @internal The scripted models that are not among the providers of descriptions, as a description of their own. */
export function scriptedBeside(descriptions: readonly Toolkit[]): Toolkit {
  const given = new Set(descriptions.flatMap(({ providers }) => Object.keys(providers ?? {})));
  return { providers: Object.fromEntries([...scripted].filter(([name]) => !given.has(name))) };
}
