// Which addresses, of those that models and servers write, a page may lead to.

/** The address where it may be followed; null for any other, such as `javascript:`. */
export function safeAddress(address: string | undefined): string | null {
  if (!address) return null;
  try {
    const { protocol } = new URL(address, "https://relative.invalid/");
    const isAbsolute = /^[a-z][a-z0-9+.-]*:/i.test(address);
    return isAbsolute && (protocol === "http:" || protocol === "https:" || protocol === "mailto:") ? address : null;
  } catch {
    return null;
  }
}
