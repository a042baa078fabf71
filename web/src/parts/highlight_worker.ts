// Colours for code, found in a worker: loading grammars and reading code would make the page stutter.
import type { HighlighterCore, ThemedToken } from "shiki/core";

type Grammar = () => Promise<{ default: unknown }>;

const grammars: Readonly<Record<string, Grammar>> = {
  bash: () => import("shiki/langs/bash.mjs"),
  css: () => import("shiki/langs/css.mjs"),
  diff: () => import("shiki/langs/diff.mjs"),
  go: () => import("shiki/langs/go.mjs"),
  html: () => import("shiki/langs/html.mjs"),
  javascript: () => import("shiki/langs/javascript.mjs"),
  json: () => import("shiki/langs/json.mjs"),
  python: () => import("shiki/langs/python.mjs"),
  rust: () => import("shiki/langs/rust.mjs"),
  sql: () => import("shiki/langs/sql.mjs"),
  toml: () => import("shiki/langs/toml.mjs"),
  typescript: () => import("shiki/langs/typescript.mjs"),
  yaml: () => import("shiki/langs/yaml.mjs"),
};

const aliases: Readonly<Record<string, string>> = { sh: "bash", shell: "bash", zsh: "bash", console: "bash", js: "javascript", jsx: "javascript", ts: "typescript", tsx: "typescript", py: "python", rs: "rust", yml: "yaml", patch: "diff", xml: "html" };

interface ColouredPiece {
  readonly text: string;
  readonly colour: string | null;
}

let highlighter: Promise<HighlighterCore> | null = null;
const loaded = new Map<string, Promise<void>>();

async function open(): Promise<HighlighterCore> {
  const [{ createHighlighterCore }, { createJavaScriptRegexEngine }, light, dark] = await Promise.all([
    import("shiki/core"),
    import("shiki/engine/javascript"),
    import("shiki/themes/github-light-high-contrast.mjs"),
    import("shiki/themes/github-dark-high-contrast.mjs"),
  ]);
  return createHighlighterCore({ themes: [light.default, dark.default], langs: [], engine: createJavaScriptRegexEngine({ forgiving: true }) });
}

/** The lines of a code in coloured pieces; null where its language is not known. */
async function highlight(code: string, language: string): Promise<readonly (readonly ColouredPiece[])[] | null> {
  const name = aliases[language] ?? language;
  const grammar = Object.hasOwn(grammars, name) ? grammars[name] : undefined;
  if (!grammar) return null;
  highlighter ??= open();
  const opened = await highlighter;
  let loading = loaded.get(name);
  if (!loading) {
    loading = grammar().then((found) => opened.loadLanguage(found.default as never));
    loaded.set(name, loading);
  }
  await loading;
  const { tokens } = opened.codeToTokens(code, { lang: name, themes: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" }, defaultColor: false });
  return tokens.map((line) => line.map(piece));
}

function piece(token: ThemedToken): ColouredPiece {
  const style = typeof token.htmlStyle === "object" ? token.htmlStyle : {};
  const light = style["--shiki-light"];
  const dark = style["--shiki-dark"];
  return { text: token.content, colour: light && dark ? `light-dark(${light}, ${dark})` : null };
}

self.addEventListener("message", (event: MessageEvent<{ id: number; code: string; language: string }>) => {
  const { id, code, language } = event.data;
  highlight(code, language).then(
    (lines) => self.postMessage({ id, lines }),
    () => self.postMessage({ id, lines: null }),
  );
});
