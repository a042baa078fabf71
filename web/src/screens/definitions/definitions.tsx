// A screen to be written.
export function Definitions() {
  return null;
}
