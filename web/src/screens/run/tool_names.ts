// What tools are called and what a call is about, for the first line of its card.
import { asObject, asText } from "@flovyn/react/transcript";

export type Look = "terminal" | "file" | "change" | "search" | "web" | "list" | "server" | "agent" | "other";

/** How a call of a tool looks. */
export function lookOf(name: string): Look {
  if (name.startsWith("mcp__")) return "server";
  switch (name) {
    case "bash":
    case "bash-output":
    case "bash-stop":
    case "run-sandbox":
    case "run_sandbox":
      return "terminal";
    case "read":
    case "read_result":
      return "file";
    case "write":
    case "edit":
      return "change";
    case "grep":
    case "find":
      return "search";
    case "fetch":
      return "web";
    case "todo":
      return "list";
    default:
      return name.startsWith("transfer_to_") ? "agent" : "other";
  }
}

/** A tool of a server as `SERVER: TOOL`, any other by its name. */
export function nameOf(tool: string): string {
  const [, server, name] = /^mcp__(.+?)__(.+)$/.exec(tool) ?? [];
  return server && name ? `${server}: ${name}` : tool;
}

/** What a call is about, in one line. */
export function aboutOf(name: string, given: unknown): string {
  const said = asObject(given);
  if (!said) return given === null || given === undefined ? "" : JSON.stringify(given).slice(0, 300);
  const first = ["command", "path", "pattern", "url", "code", "task", "call_id", "handle", "question"].map((key) => asText(said[key])).find((each) => each !== null);
  if (first !== undefined) {
    const where = lookOf(name) === "search" ? asText(said["path"]) : null;
    return (where && where !== first ? `${first} in ${where}` : (first ?? "")).replace(/\s+/g, " ").slice(0, 300);
  }
  return Object.entries(said)
    .map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ")
    .replace(/\s+/g, " ")
    .slice(0, 300);
}
