// What a call was given and what came of it, each tool in the form that people know from it.
import { asObject, asText } from "@flovyn/react/transcript";
import type { CallPart, ResultPart, TerminalPiece } from "@flovyn/react/transcript";
import { useMemo } from "react";
import { DiffView } from "../../parts/diff_view";
import { classNames } from "../../parts/class_names";
import { JsonView } from "../../parts/json_view";
import { LongText } from "../../parts/long_text";
import { Ansi } from "../../parts/terminal";
import { MediaView } from "./media_view";
import { lookOf } from "./tool_names";

const pane = "rounded-md border border-line bg-raised p-3";

export function Given({ call }: { call: CallPart }) {
  const said = asObject(call.arguments);
  if (call.raw !== null) return <LongText text={call.raw} className={pane} />;
  const look = lookOf(call.name);
  if (look === "change" && said) return <Change said={said} />;
  const command = asText(said?.["command"]) ?? asText(said?.["code"]);
  if (look === "terminal" && command !== null) {
    return (
      <pre tabIndex={0} className={classNames(pane, "overflow-x-auto font-mono text-xs leading-5 whitespace-pre-wrap [overflow-wrap:anywhere]")}>
        <span aria-hidden className="text-faint select-none">
          ${" "}
        </span>
        {command}
      </pre>
    );
  }
  if (!said || !Object.keys(said).length) return null;
  return (
    <div className={pane}>
      <JsonView value={call.arguments} />
    </div>
  );
}

/** What `edit` and `write` change. */
function Change({ said }: { said: Readonly<Record<string, unknown>> }) {
  const edits = Array.isArray(said["edits"]) ? said["edits"].map(asObject) : [said];
  return (
    <div className="flex flex-col gap-2">
      {edits.map((edit, index) => (
        <DiffView key={index} before={asText(edit?.["old_string"]) ?? ""} after={asText(edit?.["new_string"]) ?? asText(edit?.["content"]) ?? ""} />
      ))}
    </div>
  );
}

export function Result({ call, result }: { call: CallPart; result: ResultPart }) {
  const look = lookOf(call.name);
  const details = asObject(result.details);
  return (
    <div className="flex flex-col gap-2">
      {look === "terminal" ? (
        <TerminalView pieces={[{ stream: "stdout", text: result.text }]} exitCode={exitCodeOf(details)} timedOut={details?.["timedOut"] === true} />
      ) : look === "search" ? (
        <Hits text={result.text} isError={result.isError} />
      ) : look === "list" && Array.isArray(details?.["todos"]) ? (
        <Todos todos={details["todos"]} />
      ) : (
        <Value text={result.text} isError={result.isError} />
      )}
      {result.media.map((media, index) => (
        <MediaView key={index} media={media} />
      ))}
      {look === "server" && details && Object.keys(details).length > 0 && (
        <details className="text-sm">
          <summary className="text-xs text-faint">As the server sent it</summary>
          <div className={classNames(pane, "mt-1")}>
            <JsonView value={details} open={1} />
          </div>
        </details>
      )}
    </div>
  );
}

function exitCodeOf(details: Readonly<Record<string, unknown>> | null): number | null {
  const code = details?.["exitCode"];
  return typeof code === "number" ? code : null;
}

/** A terminal: what was printed as it came, errors tinted, and how it ended. */
export function TerminalView({ pieces, exitCode, timedOut = false, isRunning = false }: { pieces: readonly TerminalPiece[]; exitCode: number | null; timedOut?: boolean; isRunning?: boolean }) {
  const long = pieces.reduce((sum, piece) => sum + piece.text.length, 0) > 60_000;
  return (
    <div className="overflow-hidden rounded-md border border-line">
      <div tabIndex={0} role="region" aria-label="Output" className="max-h-96 overflow-auto bg-raised p-3">
        {long ? (
          <LongText text={pieces.map((piece) => piece.text).join("")} shown={20_000} />
        ) : (
          <pre className="font-mono text-xs leading-5 whitespace-pre-wrap [overflow-wrap:anywhere]">
            {pieces.map((piece, index) => (
              <span key={index} className={piece.stream === "stderr" ? "text-red" : undefined}>
                <Ansi text={piece.text} />
              </span>
            ))}
            {isRunning && <span className="pulse">▍</span>}
          </pre>
        )}
      </div>
      {(exitCode !== null || timedOut) && (
        <div className={classNames("border-t border-line px-3 py-1 text-xs", exitCode === 0 && !timedOut ? "text-green" : "text-red")}>{timedOut ? "It took too long and was ended" : `Exit code ${exitCode}`}</div>
      )}
    </div>
  );
}

/** Lines that matched, by file. */
function Hits({ text, isError }: { text: string; isError: boolean }) {
  const files = useMemo(() => {
    const found = new Map<string, { line: string; text: string }[]>();
    const lines = text.trimEnd().split("\n");
    for (const line of lines) {
      const [, path, number, rest] = /^(.+?):(\d+)[:-] ?(.*)$/.exec(line) ?? [];
      if (!path || !number) return null;
      found.set(path, [...(found.get(path) ?? []), { line: number, text: rest ?? "" }]);
    }
    return found.size && lines.length < 500 ? found : null;
  }, [text]);
  if (isError || !files) return <Value text={text} isError={isError} />;
  return (
    <div className={classNames(pane, "flex max-h-96 flex-col gap-2 overflow-auto")} tabIndex={0} role="region" aria-label="Matches">
      {[...files].map(([path, lines]) => (
        <div key={path} className="font-mono text-xs leading-5">
          <div className="font-medium text-accent">{path}</div>
          {lines.map((each, index) => (
            <div key={index} className="flex gap-3">
              <span className="w-10 shrink-0 text-right text-faint select-none">{each.line}</span>
              <span className="whitespace-pre-wrap [overflow-wrap:anywhere]">{each.text}</span>
            </div>
          ))}
        </div>
      ))}
    </div>
  );
}

function Todos({ todos }: { todos: readonly unknown[] }) {
  const signs: Record<string, string> = { done: "☑", completed: "☑", in_progress: "◐", pending: "☐" };
  return (
    <ul className={classNames(pane, "text-sm")}>
      {todos.map((each, index) => {
        const todo = asObject(each);
        const status = asText(todo?.["status"]) ?? "pending";
        return (
          <li key={index} className={status === "done" || status === "completed" ? "text-faint line-through" : undefined}>
            <span aria-label={status}>{signs[status] ?? "☐"}</span> {asText(todo?.["content"]) ?? ""}
          </li>
        );
      })}
    </ul>
  );
}

/** JSON where it is JSON, else text. */
export function Value({ text, isError = false }: { text: string; isError?: boolean }) {
  const parsed = useMemo(() => {
    if (text.length > 2_000_000 || !/^\s*[[{]/.test(text)) return undefined;
    try {
      return JSON.parse(text) as unknown;
    } catch {
      return undefined;
    }
  }, [text]);
  if (!text) return <p className="text-sm text-faint">It returned nothing.</p>;
  return (
    <div className={classNames("rounded-md border p-3", isError ? "border-red/40 bg-red-ground" : "border-line bg-raised")}>{parsed === undefined ? <LongText text={text} /> : <JsonView value={parsed} />}</div>
  );
}
