// A conversation as plain text, block by block: to be compared, or saved.
import type { Block } from "./conversation.js";

/** Writes the blocks of a conversation as one text. */
export function plainTextOf(blocks: readonly Block[]): string {
  return blocks.map(textOf).filter(Boolean).join("\n\n");
}

function textOf(block: Block): string {
  switch (block.kind) {
    case "message":
      return `${block.role}:\n${block.text}`;
    case "thinking":
      return `thought:\n${block.text}`;
    case "call":
      return `call of ${block.call.name}:\n${JSON.stringify(block.call.arguments, null, 2)}${block.result ? `\n${block.result.isError ? "failed" : "result"}:\n${block.result.text}` : ""}`;
    case "value":
      return typeof block.value === "string" ? block.value : JSON.stringify(block.value, null, 2);
    case "note":
      return block.word;
    default:
      return `${block.entry.type} of ${block.entry.reference?.size ?? 0} bytes`;
  }
}
