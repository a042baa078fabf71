// A screen to be written.
export function Machines() {
  return null;
}
