// A screen to be written.
export function Keys() {
  return null;
}
