// The filters of the list of runs. They are the address, so that a list can be passed on.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { X } from "lucide-react";
import { useEffect, useState } from "react";
import { queuesQuery } from "../../api/queries";
import type { RunFilter } from "../../api/queries";
import { Button } from "../../parts/button";
import { Check, InlineSelect } from "../../parts/field";
import { STATUSES, statusWord } from "../../parts/status";
import type { RunsSearch } from "../../search";

const SPANS = { "1h": ["last hour", 3_600], "24h": ["last day", 86_400], "7d": ["last 7 days", 604_800], "30d": ["last 30 days", 2_592_000] } as const;
const STATUS_GROUPS = { "RUNNING,WAITING,PENDING,CANCELLING": "Not ended", "WAITING,PAUSED": "Need someone", "FAILED,CANCELLED": "Went wrong" } as const;

/** What the server is asked for an address; the span is cut to the minute, so that it is one question for a while. */
export function filterOf(search: RunsSearch): RunFilter {
  const span = SPANS[search.since as keyof typeof SPANS];
  const from = span && new Date(Math.floor((Date.now() - span[1] * 1000) / 60_000) * 60_000).toISOString();
  return {
    status: search.status?.split(","),
    kind: search.kind,
    queue: search.queue,
    definition: search.definition,
    createdFrom: from,
    search: search.q,
    roots: search.all ? undefined : true,
  };
}

export function Filters({ search }: { search: RunsSearch }) {
  const navigate = useNavigate({ from: "/runs" });
  const queues = useQuery({ ...queuesQuery, refetchInterval: false, staleTime: 60_000 });
  const [kind, setKind] = useState(search.kind ?? "");
  useEffect(() => setKind(search.kind ?? ""), [search.kind]);
  const [words, setWords] = useState(search.q ?? "");
  useEffect(() => setWords(search.q ?? ""), [search.q]);
  const set = (change: { [key in keyof RunsSearch]?: RunsSearch[key] | undefined }) => {
    const next = Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, value]) => value !== undefined && value !== ""));
    void navigate({ search: next as RunsSearch, replace: true });
  };
  const kinds = [...new Set(queues.data?.items.map((each) => each.kind).filter((each) => !each.startsWith("tool.") && each !== "llm.generate"))];
  const isFiltered = Object.keys(search).length > 0;
  return (
    <div className="flex flex-wrap items-center gap-2 px-4 pb-2">
      <form
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          set({ q: words.trim() || undefined });
        }}
      >
        <input
          data-search
          type="search"
          aria-label="Search"
          placeholder="Search: words, id, metadata"
          value={words}
          onChange={(event) => {
            setWords(event.target.value);
            if (event.target.value === "") set({ q: undefined });
          }}
          onBlur={() => set({ q: words.trim() || undefined })}
          className="h-8 w-56 rounded-md border border-line bg-surface px-2 text-sm placeholder:text-soft"
        />
      </form>
      <InlineSelect label="Status" value={search.status ?? ""} onChange={(event) => set({ status: event.target.value || undefined })}>
        <option value="">Any status</option>
        {Object.entries(STATUS_GROUPS).map(([value, word]) => (
          <option key={value} value={value}>
            {word}
          </option>
        ))}
        {STATUSES.map((status) => (
          <option key={status} value={status}>
            {statusWord(status)}
          </option>
        ))}
      </InlineSelect>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          set({ kind: kind.trim() || undefined });
        }}
      >
        <input
          aria-label="Kind"
          list="kinds"
          placeholder="Any kind"
          value={kind}
          onChange={(event) => {
            setKind(event.target.value);
            if (kinds.includes(event.target.value) || event.target.value === "") set({ kind: event.target.value || undefined });
          }}
          onBlur={() => set({ kind: kind.trim() || undefined })}
          className="h-8 w-36 rounded-md border border-line bg-surface px-2 text-sm placeholder:text-soft"
        />
        <datalist id="kinds">
          {kinds.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      </form>
      <InlineSelect label="Started" value={search.since ?? ""} onChange={(event) => set({ since: event.target.value || undefined })}>
        <option value="">Any time</option>
        {Object.entries(SPANS).map(([value, [word]]) => (
          <option key={value} value={value}>
            {word}
          </option>
        ))}
      </InlineSelect>
      <Check label="Children too" checked={search.all === true} onChange={(event) => set({ all: event.target.checked ? true : undefined })} />
      {search.queue && <Chip label={`queue ${search.queue}`} onRemove={() => set({ queue: undefined })} />}
      {search.definition && <Chip label={`agent ${search.definition}`} onRemove={() => set({ definition: undefined })} />}
      {isFiltered && (
        <Button small tone="quiet" onClick={() => void navigate({ search: {}, replace: true })}>
          Clear
        </Button>
      )}
    </div>
  );
}

function Chip({ label, onRemove }: { label: string; onRemove: () => void }) {
  return (
    <button type="button" aria-label={`Remove the filter ${label}`} onClick={onRemove} className="inline-flex h-7 items-center gap-1 rounded-full bg-accent-ground px-2.5 text-xs text-accent">
      {label}
      <X size={12} aria-hidden />
    </button>
  );
}
