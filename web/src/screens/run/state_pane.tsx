// A pane to be written.
export function StatePane() {
  return null;
}
