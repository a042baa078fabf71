// Where a Markdown text may be cut so that each piece means by itself what it means in the whole.

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const NESTED = /^(\s+\S|[-*+] |\d+[.)] )/;

/** The blocks of a text: cut at blank lines outside of code and lists. Put together they are the text. */
export function blocksOf(text: string): readonly string[] {
  const lines = text.split("\n");
  const blocks: string[] = [];
  let block: string[] = [];
  let fence: string | null = null;
  let blank = false;
  for (const line of lines) {
    const found = FENCE.exec(line)?.[1];
    if (fence === null && blank && line.trim() !== "" && !NESTED.test(line) && block.length) {
      blocks.push(block.join("\n"));
      block = [];
    }
    if (found && fence === null) fence = found;
    else if (found && fence !== null && found[0] === fence[0] && found.length >= fence.length && line.trim() === found) fence = null;
    block.push(line);
    blank = fence === null && line.trim() === "";
  }
  if (block.length) blocks.push(block.join("\n"));
  return blocks;
}
