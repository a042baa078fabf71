// The files that a run has written: each with its versions, as far as the calls that made them tell.
import { asObject, asText } from "@flovyn/react/transcript";
import type { Block, CallBlock } from "@flovyn/react/transcript";

export interface FileVersion {
  readonly block: CallBlock;
  /** Pieces of text that were replaced; `write` replaces all of it. */
  readonly changes: readonly { readonly before: string; readonly after: string }[];
  /** The whole text, where it is known. */
  readonly whole: string | null;
}

export interface WrittenFile {
  readonly path: string;
  readonly versions: readonly FileVersion[];
}

function editsOf(said: Readonly<Record<string, unknown>>): { before: string; after: string; isAll: boolean }[] {
  const edits = Array.isArray(said["edits"]) ? said["edits"].map(asObject) : [said];
  return edits.flatMap((edit) => {
    const before = asText(edit?.["old_string"]);
    const after = asText(edit?.["new_string"]);
    return before !== null && after !== null ? [{ before, after, isAll: edit?.["replace_all"] === true }] : [];
  });
}

/** The files of a conversation, the one that was written last first. Calls that failed have written nothing. */
export function writtenFiles(blocks: readonly Block[]): readonly WrittenFile[] {
  const files = new Map<string, FileVersion[]>();
  for (const block of blocks) {
    if (block.kind !== "call" || !block.result || block.result.isError) continue;
    const { name } = block.call;
    const said = asObject(block.call.arguments);
    const path = asText(said?.["path"]);
    if (!said || path === null || (name !== "write" && name !== "edit")) continue;
    const versions = files.get(path) ?? [];
    const known = versions.at(-1)?.whole ?? null;
    files.delete(path);
    files.set(path, [...versions, name === "write" ? written(block, said, known) : edited(block, said, known)]);
  }
  return [...files].map(([path, versions]) => ({ path, versions })).reverse();
}

function written(block: CallBlock, said: Readonly<Record<string, unknown>>, known: string | null): FileVersion {
  const whole = asText(said["content"]) ?? "";
  return { block, changes: [{ before: known ?? "", after: whole }], whole };
}

function edited(block: CallBlock, said: Readonly<Record<string, unknown>>, known: string | null): FileVersion {
  const edits = editsOf(said);
  // What was written whole before is whole after an edit, too.
  const whole = edits.reduce<string | null>((text, edit) => {
    if (text === null || !text.includes(edit.before)) return null;
    return edit.isAll ? text.split(edit.before).join(edit.after) : text.replace(edit.before, () => edit.after);
  }, known);
  return { block, changes: known !== null && whole !== null ? [{ before: known, after: whole }] : edits, whole };
}
