// Commands for people to run, as a shell takes them.

/** A word as a shell takes it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** A command about a run, or an op of it. */
export function commandOf(command: string, url: string, of: string): string {
  return `flovyn runs ${command} ${quoted(url)} ${quoted(of)}`;
}
