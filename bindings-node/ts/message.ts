// One entry of a conversation as readers see it.

import { decode } from "./serde.js";

/** One entry of the conversation. */
export interface Message {
  /** The entry's UUID. */
  readonly id: string;
  /** The entry before it on its branch. */
  readonly parentId: string | null;
  readonly role: string;
  readonly entryType: string;
  readonly content: unknown;
  readonly turnId: string | null;
  readonly metadata: unknown;
  readonly createdAt: Date;
}

/** A conversation at one moment; `position` is where it ends, for `handle.stream({ after: position })`. */
export type Messages = Message[] & { readonly position: string };

/** Makes messages of what the engine gives. */
export function messagesOf(found: unknown[][]): Message[] {
  return found.map(([id, parent, role, entryType, content, turnId, metadata, ms]) => ({
    id: id as string,
    parentId: (parent as string | null | undefined) ?? null,
    role: role as string,
    entryType: entryType as string,
    content: decode(content),
    turnId: (turnId as string | null | undefined) ?? null,
    metadata: typeof metadata === "string" ? (JSON.parse(metadata) as unknown) : null,
    createdAt: new Date(ms as number),
  }));
}
