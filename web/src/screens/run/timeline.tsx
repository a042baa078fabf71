// A pane to be written.
export function Timeline() {
  return null;
}
