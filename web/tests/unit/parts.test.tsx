// The parts: formatting, differences, terminals, Markdown, and text that means harm.
import { emptyValues, readValues, safeAddress } from "@flovyn/react/transcript";
import fc from "fast-check";
import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import { ansiPieces } from "../../src/parts/ansi";
import { diffLines } from "../../src/parts/diff";
import { formatBytes, formatCost, formatRelative, formatSpan } from "../../src/parts/format";
import { JsonView } from "../../src/parts/json_view";
import { piecesOf } from "../../src/parts/long_text";
import { Markdown } from "../../src/parts/markdown";
import { blocksOf } from "../../src/parts/markdown_blocks";
import { plainOf } from "../../src/parts/plain";
import { Ansi } from "../../src/parts/terminal";
import { marksOf } from "../../src/screens/run/marks";

const ESCAPE = "\u001b";

describe("formatting", () => {
  it("writes spans with the units that people read", () => {
    expect([0.005, 0.4, 12, 185, 7_800, 273_600].map(formatSpan)).toEqual(["5 ms", "0.4 s", "12 s", "3 min 05 s", "2 h 10 min", "3 d 4 h"]);
  });

  it("says that a price is unknown, and never that it is nothing", () => {
    expect(formatCost(null)).toBe("unknown");
    expect(formatCost(undefined)).toBe("unknown");
    expect(formatCost(0.0042)).toContain("0.0042");
    expect(formatCost(12.5)).toContain("12.50");
  });

  it("tells how far a moment is, and shows what is none as it is", () => {
    expect(formatRelative("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:03:00Z"))).toMatch(/3/);
    expect(formatRelative("never")).toBe("never");
    expect(formatBytes(3 * 1024 * 1024)).toContain("3");
  });
});

describe("differences", () => {
  it("give back both sides", () => {
    const lines = fc.array(fc.constantFrom("a", "b", "c", "d"), { maxLength: 12 });
    fc.assert(
      fc.property(lines, lines, (before, after) => {
        const rows = diffLines(before.join("\n"), after.join("\n"));
        const side = (kind: "gone" | "new") => rows.filter((row) => row.kind !== (kind === "gone" ? "new" : "gone")).map((row) => row.text);
        expect(side("gone").join("\n")).toBe(before.join("\n"));
        expect(side("new").join("\n")).toBe(after.join("\n"));
      }),
    );
  });

  it("keep what both have", () => {
    expect(diffLines("a\nb\nc", "a\nx\nc").map((row) => row.kind)).toEqual(["same", "gone", "new", "same"]);
  });
});

describe("terminals", () => {
  it("colour what is coloured", () => {
    const [first, second] = ansiPieces(`${ESCAPE}[1;32mok${ESCAPE}[0m done`);
    expect(first).toMatchObject({ text: "ok", bold: true, colour: "var(--green)" });
    expect(second).toMatchObject({ text: " done", bold: false, colour: null });
  });

  it("leave out what moves, links and titles, and keep the end of a line that was overwritten", () => {
    const text = (printed: string) => ansiPieces(printed).map((piece) => piece.text).join("");
    expect(text(`${ESCAPE}[2J${ESCAPE}[1;1Hclean`)).toBe("clean");
    expect(text(`${ESCAPE}]8;;javascript:alert(1)\u0007link${ESCAPE}]8;;\u0007`)).toBe("link");
    expect(text(`${ESCAPE}]0;title`)).toBe("");
    expect(text("10 %\r50 %\r100 %\nnext\r\n")).toBe("100 %\nnext\n");
  });

  it("show no control character, whatever is printed", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(ESCAPE, "[", "]", ";", "m", "3", "8", "\r", "\n", "a", "<", "\u0007", "\u009b", "2") }), (printed) => {
        // eslint-disable-next-line no-control-regex
        expect(ansiPieces(printed).map((piece) => piece.text).join("")).not.toMatch(/[\u0000-\u0008\u000b-\u001f]/);
      }),
      { numRuns: 2_000 },
    );
  });

  it("are never HTML", () => {
    const html = renderToStaticMarkup(createElement(Ansi, { text: `${ESCAPE}[31m<img src=x onerror=alert(1)>${ESCAPE}[0m<script>` }));
    expect(html).not.toMatch(/<img|<script/);
  });
});

const harm = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "[a](javascript:alert(1))",
  "[a](  JaVaScRiPt:alert(1))",
  "[a](data:text/html,<script>alert(1)</script>)",
  "[a](vbscript:x)",
  "![a](javascript:alert(1))",
  "<a href='javascript:alert(1)'>a</a>",
  "<javascript:alert(1)>",
  "[a]: javascript:alert(1)\n\n[a]",
  "![track](https://example.org/x.png)",
  "<svg onload=alert(1)>",
  "<iframe src=https://example.org></iframe>",
  "[a](/runs/other)",
  "[a](//example.org)",
];

describe("Markdown", () => {
  it("is drawn as Markdown", () => {
    const html = renderToStaticMarkup(createElement(Markdown, { text: "# A\n\n**b** and [c](https://example.org)\n\n| x |\n| - |\n| y |" }));
    expect(html).toContain("<h1>A</h1>");
    expect(html).toContain("<strong>b</strong>");
    expect(html).toContain('href="https://example.org" rel="noopener noreferrer nofollow"');
    expect(html).toContain("<td>y</td>");
  });

  it.each(harm)("runs nothing and loads nothing of %s", (text) => {
    const html = renderToStaticMarkup(createElement(Markdown, { text }));
    expect(html).not.toMatch(/<(script|img|svg[^>]*onload|iframe|object|embed|form|style)\b/i);
    for (const [, address] of html.matchAll(/(?:href|src)="([^"]*)"/g)) expect(address).toMatch(/^(https?:|mailto:)/);
  });

  it("follows no address but those of the web and of mail, whatever it is", () => {
    fc.assert(
      fc.property(fc.string(), (address) => {
        const safe = safeAddress(address);
        if (safe !== null) expect(["http:", "https:", "mailto:"]).toContain(new URL(safe).protocol);
      }),
    );
    for (const address of ["java\nscript:alert(1)", "\u0001javascript:alert(1)", "JAVASCRIPT:alert(1)", "blob:x", "file:///etc/passwd"]) expect(safeAddress(address)).toBeNull();
  });

  it("is cut into blocks that make the whole again, and never within code", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom("a", "", "```", "~~~", "- b", "  c", "1. d", "> e", "| f |", "````"), { maxLength: 20 }), (lines) => {
        const text = lines.join("\n");
        expect(blocksOf(text).join("\n")).toBe(text);
      }),
    );
    expect(blocksOf("a\n\n```\nx\n\ny\n```\n\nb")).toHaveLength(3);
    expect(blocksOf("- a\n\n- b\n\nc")).toHaveLength(2);
  });

  it("shows a text of 5 MB by its beginning", () => {
    const begun = performance.now();
    const html = renderToStaticMarkup(createElement(Markdown, { text: "**otter** ".repeat(500_000) }));
    expect(html.length).toBeLessThan(20_000);
    expect(performance.now() - begun).toBeLessThan(500);
  });

  it("becomes a plain line where there is room for no more", () => {
    expect(plainOf("## A\n\n**b** `c`\n\n```\ncode\n```\n\n[d](https://e.example)")).toBe("A b c d");
  });
});

describe("marks of a timeline", () => {
  const event = (id: number, name: string, data: object = {}) => ({ id, event: name, data: { at: `2026-01-01T00:00:0${id}Z`, ...data } });

  it("say where a worker was lost and another one goes on, and nothing of what happens after each wait", () => {
    const lives = [
      event(1, "agent.resumed", { workerId: "a" }),
      event(2, "agent.resumed", { workerId: "a" }),
      event(3, "agent.lease_lost", { epoch: 2 }),
      event(4, "agent.resumed", { workerId: "b" }),
      event(5, "agent.resumed", { workerId: "c" }),
      event(6, "agent.paused", { reason: "step_limit" }),
      event(7, "agent.continued"),
    ];
    expect(marksOf(lives).map((mark) => [mark.key, mark.tone, mark.label.split(":")[0]])).toEqual([
      [3, "bad", "The worker was lost"],
      [4, "good", "Recovered"],
      [5, "turn", "Goes on in another worker"],
      [6, "bad", "Paused"],
      [7, "good", "Resumed by somebody"],
    ]);
    expect(marksOf([{ id: 1, event: "agent.paused", data: {} }, { id: 2, event: "agent.paused", data: { at: 7 } }])).toEqual([]);
  });
});

describe("values", () => {
  it("of any form are drawn as text", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(renderToStaticMarkup(createElement(JsonView, { value, open: 9 }))).not.toMatch(/<(script|img)/);
      }),
      { numRuns: 100 },
    );
    expect(renderToStaticMarkup(createElement(JsonView, { value: { "<script>": "<img src=x>" } }))).not.toMatch(/<(script|img)/);
  });

  it("that are large cost what is seen of them", () => {
    const html = renderToStaticMarkup(createElement(JsonView, { value: Array.from({ length: 100_000 }, (_, index) => index) }));
    expect(html.match(/text-blue/g)?.length).toBe(100);
  });

  it("are cut into pieces that make the whole again", () => {
    fc.assert(fc.property(fc.string({ maxLength: 500 }), (text) => piecesOf(text).join("") === text));
    const line = "x".repeat(100_000);
    expect(piecesOf(line).join("")).toBe(line);
    expect(piecesOf("a\n".repeat(1_000)).length).toBe(5);
  });

  it("of forms are read by their schema", () => {
    const schema = { type: "object", required: ["age"], properties: { age: { type: "integer" }, name: { type: "string" }, sure: { type: "boolean", default: true } } };
    expect(emptyValues(schema)).toEqual({ age: "", name: "", sure: true });
    expect(readValues(schema, { age: "", name: "", sure: true })).toEqual({ error: "age is missing." });
    expect(readValues(schema, { age: "x", name: "", sure: true })).toEqual({ error: "age is no whole number." });
    expect(readValues(schema, { age: "3", name: "", sure: false })).toEqual({ value: { age: 3, sure: false } });
  });
});
