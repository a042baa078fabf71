// The files that a run has written, with their versions and what each has changed; links back to the calls.
import { branchTo, conversationOf, leafOf } from "@flovyn/react/transcript";
import { Download, FileText } from "lucide-react";
import { useMemo, useState } from "react";
import { Button } from "../../parts/button";
import { classNames } from "../../parts/class_names";
import { DiffView } from "../../parts/diff_view";
import { formatClock } from "../../parts/format";
import { LongText } from "../../parts/long_text";
import { saveText } from "../../parts/save";
import { Empty } from "../../parts/states";
import { writtenFiles } from "./file_versions";
import { useShown } from "./shown";

export function Files() {
  const { run, view, inspect } = useShown();
  const { entries } = view.transcript;
  const branch = useMemo(() => branchTo({ entries, runs: new Map() }, leafOf({ entries, runs: new Map() }, run.id)), [entries, run.id]);
  const files = useMemo(() => writtenFiles(conversationOf(branch.entries)), [branch]);
  const [path, setPath] = useState<string | null>(null);
  const [place, setPlace] = useState<number | null>(null);
  const [isWhole, setWhole] = useState(false);
  const file = files.find((each) => each.path === path) ?? files[0];
  if (!file) {
    return (
      <Empty title="No files" icon={<FileText size={26} aria-hidden />}>
        {branch.missing ? "None in what is loaded. Scroll up in the conversation to load what is older." : "What the agent writes and edits stands here, version by version."}
      </Empty>
    );
  }
  const index = Math.min(place ?? file.versions.length - 1, file.versions.length - 1);
  const version = file.versions[index];
  return (
    <div className="flex min-h-0 flex-1 flex-col md:flex-row">
      <ul aria-label="Files" className="max-h-40 shrink-0 overflow-y-auto border-b border-line md:max-h-none md:w-64 md:border-r md:border-b-0">
        {files.map((each) => (
          <li key={each.path}>
            <button
              type="button"
              aria-current={each === file}
              onClick={() => {
                setPath(each.path);
                setPlace(null);
              }}
              className={classNames("flex w-full items-baseline gap-2 px-4 py-1.5 text-left text-sm hover:bg-hover", each === file && "bg-accent-ground")}
            >
              <span className="min-w-0 truncate font-mono text-xs" title={each.path}>
                {each.path}
              </span>
              <span className="ml-auto shrink-0 text-xs text-faint">{each.versions.length === 1 ? "1 version" : `${each.versions.length} versions`}</span>
            </button>
          </li>
        ))}
        {branch.missing && <li className="px-4 py-2 text-xs text-amber">Older entries are not loaded; there may be more.</li>}
      </ul>
      {version && (
        <div className="min-h-0 min-w-0 flex-1 overflow-y-auto p-4" tabIndex={0} role="region" aria-label={file.path}>
          <div className="mb-3 flex flex-wrap items-center gap-2">
            <h2 className="mr-auto min-w-0 truncate font-mono text-sm font-semibold">{file.path}</h2>
            <div role="group" aria-label="Versions" className="flex flex-wrap gap-1">
              {file.versions.map((each, at) => (
                <button key={each.block.key} type="button" aria-pressed={at === index} onClick={() => setPlace(at)} className={classNames("min-h-6 rounded px-2 text-xs", at === index ? "bg-accent-ground font-medium text-accent" : "text-soft hover:bg-hover")}>
                  {at + 1}
                </button>
              ))}
            </div>
            {version.whole !== null && (
              <>
                <Button small onClick={() => setWhole(!isWhole)}>
                  {isWhole ? "Show what differs" : "Show all of it"}
                </Button>
                <Button small icon={<Download size={13} />} onClick={() => saveText(file.path.split("/").at(-1) ?? "file", "text/plain", version.whole ?? "")}>
                  Download
                </Button>
              </>
            )}
            <Button small onClick={() => inspect(version.block.entry.id)}>
              The call
            </Button>
          </div>
          <p className="mb-2 text-xs text-faint">
            {version.block.call.name === "write" ? "Written" : "Edited"} at {formatClock(version.block.entry.at)}
            {version.whole === null && "; the run tells only what was replaced, not the whole file"}
          </p>
          {isWhole && version.whole !== null ? (
            <LongText text={version.whole} shown={40_000} className="rounded-md border border-line bg-surface p-3" />
          ) : (
            <div className="flex flex-col gap-3">
              {version.changes.map((change, at) => (
                <DiffView key={at} before={change.before} after={change.after} />
              ))}
            </div>
          )}
        </div>
      )}
    </div>
  );
}
