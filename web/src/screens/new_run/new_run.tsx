// A screen to be written.
export function NewRun() {
  return null;
}
