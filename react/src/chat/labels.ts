// What the chat says by itself, for pages in other languages.

/** Says what the chat says by itself. */
export interface ChatLabels {
  readonly conversation: string;
  readonly fromUser: string;
  readonly fromAgent: string;
  readonly system: string;
  readonly beingWritten: string;
  readonly thinking: string;
  readonly thought: string;
  readonly hidden: string;
  readonly showEarlier: string;
  readonly loading: string;
  readonly empty: string;
  readonly working: string;
  readonly reconnecting: string;
  readonly arguments: string;
  readonly result: string;
  readonly showAll: string;
  readonly showValue: string;
  readonly mayItRun: string;
  readonly approve: string;
  readonly deny: string;
  readonly approved: string;
  readonly denied: string;
  readonly whyNot: string;
  readonly back: string;
  readonly asks: string;
  readonly submitAnswer: string;
  readonly decline: string;
  readonly optional: string;
  readonly notHeardYet: string;
  readonly message: string;
  readonly send: string;
  readonly stop: string;
  readonly paused: string;
  readonly resume: string;
  readonly failed: string;
  readonly retry: string;
  readonly ended: string;
  /** By the state of a call. */
  readonly states: Readonly<Record<"asked" | "running" | "waiting" | "done" | "failed" | "denied" | "skipped", string>>;
  /** By the effect that a call has, as its tool says it. */
  readonly effects: Readonly<Record<string, string>>;
}

/** Has the labels that a chat uses where it is given none. */
export const englishLabels: ChatLabels = {
  conversation: "Conversation",
  fromUser: "From the user",
  fromAgent: "From the agent",
  system: "System prompt",
  beingWritten: "Being written",
  thinking: "Thinking…",
  thought: "Thought",
  hidden: "Not shown by its provider.",
  showEarlier: "Show earlier messages",
  loading: "Loading…",
  empty: "Nothing has been said yet.",
  working: "Working…",
  reconnecting: "The connection was lost; it is being made again.",
  arguments: "Arguments",
  result: "Result",
  showAll: "Show all",
  showValue: "Show it",
  mayItRun: "May this call run?",
  approve: "Approve",
  deny: "Deny",
  approved: "Approved.",
  denied: "Denied.",
  whyNot: "Why not?",
  back: "Back",
  asks: "An answer is needed",
  submitAnswer: "Answer",
  decline: "Decline",
  optional: "optional",
  notHeardYet: "Not heard yet",
  message: "Message",
  send: "Send",
  stop: "Stop",
  paused: "It is paused.",
  resume: "Resume",
  failed: "It failed.",
  retry: "Try again",
  ended: "It was stopped.",
  states: { asked: "needs you", running: "running", waiting: "to come", done: "done", failed: "failed", denied: "denied", skipped: "skipped" },
  effects: { read: "It only looks.", write: "It changes something.", exec: "It runs what the model wrote." },
};
