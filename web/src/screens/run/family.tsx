// A pane to be written.
export function Family() {
  return null;
}
