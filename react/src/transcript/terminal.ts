// What commands print, as text: sequences of terminals are left out, and lines count as they were in the end.

/** CSI with its final byte; OSC, DCS and the like up to their end, or to the end of the text; any other escape of two bytes. */
// eslint-disable-next-line no-control-regex
export const TERMINAL_SEQUENCE = /\x1b\[([0-?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b\[[0-?]*$|\x1b[^[\]PX^_]?|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]/g;

/** A printed text in which a line that was overwritten, as progress does, counts as it was in the end. */
export function withoutOverwritten(printed: string): string {
  return printed.includes("\r") ? printed.replace(/\r+\n/g, "\n").replace(/[^\n]*\r(?=[^\n])/g, "").replace(/\r/g, "") : printed;
}

/** A printed text without what only a terminal reads. */
export function printedText(printed: string): string {
  return withoutOverwritten(printed).replace(TERMINAL_SEQUENCE, "");
}
