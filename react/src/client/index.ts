// Runs, questions and steering without React: the boundary of what talks to a server.
export { createClient, type FlovynClient, type FlovynOptions } from "./client.js";
export { type Connection } from "./follow.js";
export { Inbox, inboxOf, type InboxState, type OpenApproval } from "./inbox.js";
export { LiveRun, liveRunOf, type LiveRunState, type RunQuestion } from "./live_run.js";
export { entryOf } from "./paging.js";
export { type PendingMessage } from "./pending.js";
export { Problem, asProblem, problemOf, unreachable } from "./problem.js";
export { openQuestions, questionsIn, runsThatAsk, type OpenQuestion } from "./questions.js";
export { RunStore, type Older, type RunListeners, type RunView } from "./run_store.js";
export { ServerSentReader, type Sent } from "./server_sent.js";
export { APPROVAL, INPUT, USER_MESSAGE, decide, endTurn, respond, resume, retry, sayTo, sendSignal, stop, uniqueKey } from "./steer.js";
export type { ApprovalTerms, Asked, Delivery, SignalOptions } from "./steer.js";
export { shortTokens, type ShortToken } from "./tokens.js";
export type { Entry, Listing, Run, RunStatus } from "./types.js";
export { addressOf, asksPerson, awaitedSignals, canGoOn, hearsMessages, isBuiltIn, promptOf, titleOf, waitingFor } from "./waiting.js";
