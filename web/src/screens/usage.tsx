// A screen to be written.
export function UsageScreen() {
  return null;
}
