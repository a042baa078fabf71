// Open questions to people, of one run and of all: calls that need an approval, and forms that servers and agents ask to fill in.
// The API has no list of questions, so this reads the newest entries of each run that waits for one.
import { branchTo, conversationOf, emptyTranscript, isUndecided, leafOf, withPage } from "../transcript/index.js";
import type { Block, CallBlock } from "../transcript/index.js";
import type { FlovynClient } from "./client.js";
import { newestEntries } from "./paging.js";
import type { Listing, Run } from "./types.js";
import { asksPerson } from "./waiting.js";

/** Is a call that waits for a person. */
export interface OpenQuestion {
  /** The call that is asked about; its `approval` or its `input` is open. */
  readonly block: CallBlock;
  /** The last words of the agent before it asked. */
  readonly why: string | null;
  readonly at: string;
}

/** How many entries from the end questions are looked for. */
const LOOKED_AT = 60;
/** How many of the newest runs that wait are looked at. */
const NEWEST = 200;

/** The runs in which a person is asked something, newest first; of the two hundred newest that wait. */
export async function runsThatAsk<R extends Run = Run>(client: FlovynClient): Promise<R[]> {
  const page = await client.get<Listing<R>>("/agent-executions", { status: "WAITING", limit: NEWEST });
  return page.items.filter(asksPerson);
}

/** The questions of a run that nobody has answered. They can only be others when the run has gone on. */
export async function openQuestions(client: FlovynClient, run: Run): Promise<readonly OpenQuestion[]> {
  if (!run.leaf) return [];
  const page = await newestEntries(client, run.id, LOOKED_AT);
  const transcript = withPage(emptyTranscript, page.items);
  return questionsIn(conversationOf(branchTo(transcript, leafOf(transcript, run.id)).entries));
}

/** The questions of a conversation that nobody has answered, the oldest first. */
export function questionsIn(blocks: readonly Block[]): readonly OpenQuestion[] {
  let why: string | null = null;
  const questions: OpenQuestion[] = [];
  for (const block of blocks) {
    if (block.kind === "message" && block.role === "assistant") why = block.text;
    else if (block.kind === "call" && isUndecided(block)) questions.push({ block, why, at: block.approval?.at ?? block.entry.at });
  }
  return questions;
}
