// A screen to be written.
export function Workers() {
  return null;
}
