// A pane to be written.
export function RunUsage() {
  return null;
}
