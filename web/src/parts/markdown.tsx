// Markdown of models and people: no HTML, no pictures from elsewhere, links only to the web and to mail.
import { safeAddress } from "@flovyn/react/transcript";
import { memo, useMemo } from "react";
import type { ComponentProps } from "react";
import ReactMarkdown from "react-markdown";
import remarkGfm from "remark-gfm";
import { CodeBlock } from "./code_block";
import { LongText } from "./long_text";
import { blocksOf } from "./markdown_blocks";

/** Beyond this a text is shown as it is: nobody reads a megabyte of Markdown. */
const LONGEST = 60_000;

const components: ComponentProps<typeof ReactMarkdown>["components"] = {
  a({ href, children }) {
    const address = safeAddress(href);
    if (!address) return <span>{children}</span>;
    return (
      <a href={address} rel="noopener noreferrer nofollow" target="_blank">
        {children}
      </a>
    );
  },
  // A picture would tell its server that somebody reads this.
  img({ alt, src }) {
    const address = safeAddress(typeof src === "string" ? src : undefined);
    return address ? (
      <a href={address} rel="noopener noreferrer nofollow" target="_blank">
        {alt || "picture"} ↗
      </a>
    ) : (
      <span>{alt}</span>
    );
  },
  pre({ children }) {
    return <CodeBlock>{children}</CodeBlock>;
  },
  table({ children }) {
    return (
      <div className="overflow-x-auto">
        <table>{children}</table>
      </div>
    );
  },
  input({ checked }) {
    return <span aria-label={checked ? "done" : "open"}>{checked ? "☑ " : "☐ "}</span>;
  },
};

const plugins = [remarkGfm];

const Piece = memo(function Piece({ text }: { text: string }) {
  return (
    <ReactMarkdown remarkPlugins={plugins} components={components} skipHtml={false} urlTransform={(address) => address}>
      {text}
    </ReactMarkdown>
  );
});

/** Text as Markdown. Its blocks are drawn each by itself, so that a text that grows costs its last block alone. */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => (text.length > LONGEST ? null : blocksOf(text)), [text]);
  if (!blocks) return <LongText text={text} shown={8_000} />;
  return (
    <div className="prose">
      {blocks.map((block, index) => (
        <Piece key={index} text={block} />
      ))}
    </div>
  );
});
