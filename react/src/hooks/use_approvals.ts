// `useApprovals`: what waits for a person, over all runs.
import { useMemo, useSyncExternalStore } from "react";
import { inboxOf } from "../client/index.js";
import type { ApprovalTerms, FlovynClient, OpenApproval, Problem } from "../client/index.js";
import { useFlovynClient } from "./provider.js";

/** Says where `useApprovals` looks. */
export interface UseApprovalsOptions {
  /** The client to use in place of the provider's. */
  readonly client?: FlovynClient | undefined;
}

/** Has what waits for a person, and what can be done about it. */
export interface UseApprovals {
  /** The open questions, the oldest first: `block.approval` is to be decided, or `block.input` to be answered. */
  readonly approvals: readonly OpenApproval[];
  /** How many runs ask; the questions of the forty newest are shown. */
  readonly runs: number;
  readonly isLoading: boolean;
  /** Why they could not be read; null while all is well. They are asked for again by themselves. */
  readonly error: Problem | null;
  /** Lets the call run, perhaps with other arguments or for the rest of the run. The first decision stands; another one is refused with a `Problem` of status 409. */
  approve(approval: OpenApproval, terms?: ApprovalTerms): Promise<void>;
  /** Refuses the call; the model is told the reason. */
  deny(approval: OpenApproval, reason?: string): Promise<void>;
  /** Answers a question that asks for input: `{ [key]: { action: "accept", content } }`, or `decline`, or `cancel`. */
  answer(approval: OpenApproval, responses: Readonly<Record<string, unknown>>): Promise<void>;
  /** Looks for questions now. */
  refresh(): Promise<void>;
}

/**
 * Shows what waits for a person in any run that the caller may see.
 *
 * It is asked for every four seconds for as long as a component shows it, once for all of them. A question that was decided here
 * is gone at once; one that was decided elsewhere with the next look.
 */
export function useApprovals(options: UseApprovalsOptions = {}): UseApprovals {
  const client = useFlovynClient(options.client);
  const inbox = inboxOf(client);
  const state = useSyncExternalStore(inbox.subscribe, inbox.current, inbox.current);
  return useMemo(() => {
    const { approve, deny, answer, refresh } = inbox;
    return { approvals: state.open, runs: state.runs, isLoading: state.isLoading, error: state.problem, approve, deny, answer, refresh };
  }, [inbox, state]);
}
