// A screen to be written.
export function RunScreen() {
  return null;
}
