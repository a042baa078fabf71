// The difference of two texts, line by line.

export interface DiffLine {
  readonly kind: "same" | "gone" | "new";
  readonly text: string;
}

/** Beyond this many lines on both sides the longest common part is not searched for: all goes, all comes. */
const LARGEST = 2_000_000;

export function diffLines(before: string, after: string): readonly DiffLine[] {
  const left = before === "" ? [] : before.split("\n");
  const right = after === "" ? [] : after.split("\n");
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left[left.length - 1 - end] === right[right.length - 1 - end]) end++;
  const same = (text: string): DiffLine => ({ kind: "same", text });
  return [
    ...left.slice(0, start).map(same),
    ...middle(left.slice(start, left.length - end), right.slice(start, right.length - end)),
    ...left.slice(left.length - end).map(same),
  ];
}

function middle(left: readonly string[], right: readonly string[]): readonly DiffLine[] {
  const gone = (text: string): DiffLine => ({ kind: "gone", text });
  const fresh = (text: string): DiffLine => ({ kind: "new", text });
  if (!left.length || !right.length || left.length * right.length > LARGEST) return [...left.map(gone), ...right.map(fresh)];
  // Lengths of the longest common parts of what is left of both sides.
  const width = right.length + 1;
  const lengths = new Uint32Array((left.length + 1) * width);
  for (let row = left.length - 1; row >= 0; row--) {
    for (let column = right.length - 1; column >= 0; column--) {
      const place = row * width + column;
      lengths[place] = left[row] === right[column] ? (lengths[place + width + 1] ?? 0) + 1 : Math.max(lengths[place + width] ?? 0, lengths[place + 1] ?? 0);
    }
  }
  const lines: DiffLine[] = [];
  let row = 0;
  let column = 0;
  while (row < left.length && column < right.length) {
    const place = row * width + column;
    if (left[row] === right[column]) {
      lines.push({ kind: "same", text: left[row] ?? "" });
      row++;
      column++;
    } else if ((lengths[place + width] ?? 0) >= (lengths[place + 1] ?? 0)) lines.push(gone(left[row++] ?? ""));
    else lines.push(fresh(right[column++] ?? ""));
  }
  return [...lines, ...left.slice(row).map(gone), ...right.slice(column).map(fresh)];
}
