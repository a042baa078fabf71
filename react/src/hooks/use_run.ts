// `useRun`: a run as it is, live, for as long as a component shows it.
import { useMemo, useSyncExternalStore } from "react";
import { canGoOn, liveRunOf } from "../client/index.js";
import type { ApprovalTerms, Connection, Delivery, FlovynClient, LiveRun, LiveRunState, PendingMessage, Problem, Run, RunQuestion } from "../client/index.js";
import { conversationOfRun, inTheMaking } from "../transcript/index.js";
import type { Block, Preview, Transcript } from "../transcript/index.js";
import { useFlovynClient } from "./provider.js";

/** Says where `useRun` looks. */
export interface UseRunOptions {
  /** The client to use in place of the provider's. */
  readonly client?: FlovynClient | undefined;
}

/** A run, and what can be done to it. The functions are the same ones for as long as the run is. */
export interface UseRun {
  /** The run as the API tells it; null until it has. */
  readonly run: Run | null;
  /** `RUNNING`, `WAITING`, … as in the API; null until it is known. */
  readonly status: Run["status"] | null;
  /** The conversation from the oldest block that is loaded to the newest: messages, thinking, calls with their results. */
  readonly blocks: readonly Block[];
  /** What is being written right now, by op. A durable block takes its place. */
  readonly previews: readonly Preview[];
  /** The text that is being written right now; empty where none is. */
  readonly text: string;
  /** Messages that were sent from this page and that the run has not heard yet. */
  readonly pending: readonly PendingMessage[];
  /** Calls that wait for a person: of this run, and of the runs below it that its stream has told of. */
  readonly questions: readonly RunQuestion[];
  /** All that the reducer knows, the runs below and their tasks included. */
  readonly transcript: Transcript;
  readonly connection: Connection;
  /** Whether what is shown is up to date: the stream is read, or there is none any more. */
  readonly isConnected: boolean;
  readonly isLoading: boolean;
  /** Why the run, or its entries, could not be read; null while all is well. A server that is away is asked again. */
  readonly error: Problem | null;
  readonly hasOlder: boolean;
  readonly isLoadingOlder: boolean;
  /** Sends a message to an agent that hears messages. It arrives once, whatever is cut meanwhile. */
  send(text: string, options?: { readonly delivery?: Delivery }): Promise<void>;
  /** Lets the call of that id run, perhaps with other arguments or for the rest of the run. The first decision stands; another one is refused with a `Problem` of status 409. */
  approve(callId: string, terms?: ApprovalTerms): Promise<void>;
  /** Refuses the call of that id; the model is told the reason. */
  deny(callId: string, reason?: string): Promise<void>;
  /** Answers the questions of the call of that id: `{ [key]: { action: "accept", content } }`, or `decline`, or `cancel`. */
  answer(callId: string, responses: Readonly<Record<string, unknown>>): Promise<void>;
  /** Ends the turn of the built-in agent, which keeps what it has and waits for the next message. */
  interrupt(): Promise<void>;
  /** Asks the run to stop: at its next step, or at once with `hard`. */
  stop(mode?: "graceful" | "hard"): Promise<void>;
  /** Lets a paused run go on. */
  resume(options?: object): Promise<void>;
  /** Lets a run that has failed go on from its last commit. */
  retry(options?: object): Promise<void>;
  /** Loads the entries before the oldest that is loaded. */
  loadOlder(): Promise<void>;
  /** Loads the content of an entry that was told by reference, for its size (a block of the kind `deferred`). */
  loadEntry(run: string, entryId: string): Promise<void>;
  /** Asks for the run again. */
  refresh(): Promise<void>;
}

/**
 * Follows a run for as long as the component is there.
 *
 * The newest entries are read, and its events from there on; all components that follow the same run through the same client
 * share one stream, which ends with the last of them. What is durable is neither lost nor doubled, whatever is cut or started anew.
 */
export function useRun(id: string, options: UseRunOptions = {}): UseRun {
  const client = useFlovynClient(options.client);
  const live = useMemo(() => liveRunOf(client, id), [client, id]);
  const state = useSyncExternalStore(live.subscribe, live.current, live.current);
  return useMemo(() => shown(live, state), [live, state]);
}

function shown(live: LiveRun, { run, view, problem, pending }: LiveRunState): UseRun {
  const { transcript } = view;
  const previews = inTheMaking(run ? transcript.runs.get(run.id) : undefined);
  const older = run ? view.older.get(run.id) : undefined;
  const connection = run && !canGoOn(run) ? "ended" : view.connection;
  const { send, approve, deny, answer, interrupt, stop, resume, retry, loadOlder, loadEntry, refresh } = live;
  return {
    run,
    status: run?.status ?? null,
    blocks: run ? conversationOfRun(transcript.entries, run.id, run.leaf ?? null) : [],
    previews,
    text: previews.map((preview) => preview.text).join(""),
    pending,
    questions: live.questions(),
    transcript,
    connection,
    isConnected: problem === null && (connection === "live" || connection === "ended"),
    isLoading: !problem && !view.problem && (!run || older?.before === undefined),
    error: problem ?? view.problem,
    hasOlder: Boolean(older?.before),
    isLoadingOlder: older?.loading === true && older.before !== undefined,
    ...{ send, approve, deny, answer, interrupt, stop, resume, retry, loadOlder, loadEntry, refresh },
  };
}
