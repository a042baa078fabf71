// Slots: where an op stands in its run, `SEGMENT-NUMBER`. They order what one run has done, in whatever order it is told.

/** The slot of an op, without the run that some answers write before it. */
export function slotOf(op: string): string {
  const parts = op.split("-");
  return parts.length <= 2 ? op : parts.slice(-2).join("-");
}

/** Compares two slots of one run. */
export function compareSlots(left: string, right: string): number {
  const [leftSegment = 0, leftNumber = 0] = left.split("-").map(Number);
  const [rightSegment = 0, rightNumber = 0] = right.split("-").map(Number);
  return leftSegment - rightSegment || leftNumber - rightNumber;
}
