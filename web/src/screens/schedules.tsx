// A screen to be written.
export function Schedules() {
  return null;
}
