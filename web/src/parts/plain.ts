// A Markdown text as one plain line, for places that have room for no more.
export function plainOf(text: string): string {
  return text
    .slice(0, 2_000)
    .replace(/```[\s\S]*?(```|$)/g, " ")
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/^\s*[|>#-]+\s*/gm, " ")
    .replace(/\*\*|__|`|\*(?=\S)|(?<=\S)\*/g, "")
    .replace(/\|[\s|:-]*/g, " ")
    .replace(/\s+/g, " ")
    .trim()
    .slice(0, 300);
}
