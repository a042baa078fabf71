// The boundary of the transcript: what a page, or a package of its own, may use of it.
export { branchTo, leafOf, type Branch } from "./branch";
export { asObject, asText, factsOf, partsOf } from "./content";
export type { AnswerFacts, CallPart, Json, JsonObject, MediaPart, Part, ResultPart } from "./content";
export { activityOf, conversationOf, inTheMaking, isUndecided } from "./conversation";
export type { ApprovalAsked, Block, CallBlock, InputAsked } from "./conversation";
export { emptyTranscript, isOver, withEvents, withPage } from "./reduce";
export { plainTextOf } from "./plain_text";
export { compareSlots, slotOf } from "./slots";
export type { ListedEntry, Preview, RunTranscript, ServerEvent, TerminalPiece, Transcript, TranscriptEntry, TranscriptTask } from "./types";
