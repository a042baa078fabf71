// The calls behind a point whose effects a fork might repeat: all that do more than look.
import { branchTo, conversationOf, leafOf } from "@flovyn/react/transcript";
import type { Transcript } from "@flovyn/react/transcript";
import { aboutOf, lookOf, nameOf } from "./tool_names";

const LOOKS: ReadonlySet<string> = new Set(["file", "search", "web", "list"]);

export function effectsBehind(transcript: Transcript, run: string, entry: string): readonly string[] {
  const { entries } = branchTo(transcript, leafOf(transcript, run));
  const place = entries.findIndex((each) => each.id === entry);
  if (place < 0) return [];
  return conversationOf(entries.slice(place + 1)).flatMap((block) => {
    if (block.kind !== "call" || !block.result || LOOKS.has(lookOf(block.call.name)) || block.approval?.effect === "read") return [];
    return [`${nameOf(block.call.name)} ${aboutOf(block.call.name, block.call.arguments)}`];
  });
}
