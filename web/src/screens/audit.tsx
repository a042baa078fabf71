// A screen to be written.
export function Audit() {
  return null;
}
