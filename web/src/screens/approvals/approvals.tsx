// A screen to be written.
export function Approvals() {
  return null;
}
