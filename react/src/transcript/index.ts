// The boundary of the transcript: what a page, or a package of its own, may use of it.
export { safeAddress } from "./address.js";
export { branchTo, leafOf, type Branch } from "./branch.js";
export { atWork, callStateOf, ordinalOf, type AtWork, type CallState } from "./calls.js";
export { asObject, asText, factsOf, partsOf } from "./content.js";
export type { AnswerFacts, CallPart, Json, JsonObject, MediaPart, Part, ResultPart } from "./content.js";
export { activityOf, conversationOf, inTheMaking, isUndecided } from "./conversation.js";
export type { ApprovalAsked, Block, CallBlock, InputAsked } from "./conversation.js";
export { emptyValues, fieldsOf, readValues, type Field, type FormValues } from "./fields.js";
export { conversationOfRun } from "./run_blocks.js";
export { emptyTranscript, isOver, withEvents, withPage } from "./reduce.js";
export { plainTextOf } from "./plain_text.js";
export { compareSlots, slotOf } from "./slots.js";
export { TERMINAL_SEQUENCE, printedText, withoutOverwritten } from "./terminal.js";
export type { ContentReference, EventData, ListedEntry, Preview, RunTranscript, ServerEvent, TerminalPiece, Transcript, TranscriptEntry, TranscriptTask } from "./types.js";
