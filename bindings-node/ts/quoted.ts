// Commands for people to run, as a shell takes them.

/** A word as a shell takes it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** A command about a run, or an op of it; of one in memory, which no other process finds, the call of its handle. */
export function commandOf(command: string, url: string, of: string): string {
  if (url.startsWith("memory:")) return `handle.${command}()`;
  return `flovyn runs ${command} ${quoted(url)} ${quoted(of)}`;
}
