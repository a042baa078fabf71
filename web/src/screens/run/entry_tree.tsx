// A pane to be written.
export function EntryTree() {
  return null;
}
