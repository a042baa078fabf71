// The conversation of a run: drawn where it is in sight, its end first, older entries as the reader goes up.
import { canGoOn } from "@flovyn/react/client";
import { activityOf, conversationOfRun, inTheMaking, ordinalOf } from "@flovyn/react/transcript";
import type { Block, CallBlock, Preview, RunTranscript } from "@flovyn/react/transcript";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown, Loader2 } from "lucide-react";
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Button } from "../../parts/button";
import { Empty, Failed, Loading } from "../../parts/states";
import { BlockView } from "./block_view";
import { CallCard, Line } from "./call_card";
import { Activity, LiveView } from "./live_view";
import { useShown } from "./shown";

/** So near to the end, in pixels, the reader is taken along. */
const NEAR = 60;
/** Where the reader stood in each run, for when they come back. */
const places = new Map<string, number>();

type Item = { readonly key: string } & (
  | { readonly kind: "top" }
  | { readonly kind: "block"; readonly block: Block; readonly ordinal: number }
  | { readonly kind: "live"; readonly preview: Preview }
  | { readonly kind: "activity" }
  | { readonly kind: "end" }
);

export function Conversation() {
  const { run, view, store } = useShown();
  const { transcript } = view;
  const told = transcript.runs.get(run.id);
  const blocks = useMemo(() => conversationOfRun(transcript.entries, run.id, run.leaf), [transcript.entries, run.id, run.leaf]);
  const done = useMemo(() => blocks.map((block, index) => ({ key: block.key, kind: "block" as const, block, ordinal: ordinalOf(blocks, index) })), [blocks]);
  const live = inTheMaking(told);
  const activity = activityOf(told);
  const isOpen = canGoOn(run);
  const older = view.older.get(run.id);

  const items = useMemo<readonly Item[]>(() => {
    const list: Item[] = [{ key: "top", kind: "top" }, ...done];
    for (const preview of live) list.push({ key: `live ${preview.op}`, kind: "live", preview });
    if (isOpen && (run.status === "RUNNING" || activity?.status === "retrying") && !live.length) list.push({ key: "activity", kind: "activity" });
    list.push({ key: "end", kind: "end" });
    return list;
    // The previews are a new list each time, but of the same previews unless the run has changed.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [done, told, isOpen, run.status]);

  const room = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(!places.has(run.id));
  const [isAway, setAway] = useState(false);
  const rows = useVirtualizer({
    count: items.length,
    getScrollElement: () => room.current,
    estimateSize: (index) => (items[index]?.kind === "block" ? 84 : 28),
    getItemKey: (index) => items[index]?.key ?? index,
    overscan: 6,
    initialOffset: () => places.get(run.id) ?? 1e9,
  });
  const drawn = rows.getVirtualItems();
  const size = rows.getTotalSize();

  // Older entries came: what the reader looks at stays where it is.
  const first = done[0]?.key;
  const before = useRef<{ first: string | undefined; offset: number }>({ first: undefined, offset: 0 });
  useLayoutEffect(() => {
    const element = room.current;
    const known = before.current;
    const place = known.first && known.first !== first ? items.findIndex((item) => item.key === known.first) : -1;
    if (element && place > 1 && !isAtEnd.current) element.scrollTop += (rows.measurementsCache[place]?.start ?? 0) - known.offset;
    before.current = { first, offset: rows.measurementsCache[1]?.start ?? 0 };
  }, [first, items, rows]);

  useLayoutEffect(() => {
    const element = room.current;
    if (element && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [size, items]);

  const onScroll = useCallback(() => {
    const element = room.current;
    if (!element) return;
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    isAtEnd.current = left < NEAR;
    setAway(left > element.clientHeight);
    places.set(run.id, element.scrollTop);
    if (isAtEnd.current) places.delete(run.id);
  }, [run.id]);

  const canLoad = Boolean(older?.before) && !older?.loading;
  const top = drawn[0]?.index ?? 0;
  useEffect(() => {
    if (canLoad && top < 8) void store.loadOlder(run.id);
  }, [canLoad, run.id, store, top]);

  const toEnd = () => {
    isAtEnd.current = true;
    room.current?.scrollTo({ top: room.current.scrollHeight });
  };

  if (view.problem && !blocks.length) return <Failed error={view.problem} />;
  if (!blocks.length && !live.length) {
    if (!older || older.loading) return <Loading what="Loading the conversation" />;
    return (
      <Empty title={isOpen ? "Nothing has been said yet" : "It said nothing"}>
        {run.status === "PENDING" ? "It waits for a worker that serves its kind. Workers and queues show who does." : run.failure ? <span className="text-red">{run.failure.message}</span> : "The timeline shows what it does."}
      </Empty>
    );
  }
  return (
    <div className="relative min-h-0 flex-1">
      <div ref={room} onScroll={onScroll} role="log" aria-label="Conversation" tabIndex={0} className="h-full overflow-y-auto [overflow-anchor:none]">
        <div className="relative mx-auto w-full max-w-3xl px-4" style={{ height: size }}>
          <div className="absolute inset-x-4 top-0" style={{ transform: `translateY(${drawn[0]?.start ?? 0}px)` }}>
            {drawn.map((virtual) => {
              const item = items[virtual.index];
              return (
                item && (
                  <div key={virtual.key} data-index={virtual.index} ref={rows.measureElement} className="py-1.5">
                    {item.kind === "top" ? (
                      <Top isLoading={older?.loading === true} isWhole={older?.before === null} problem={view.problem?.message ?? null} />
                    ) : item.kind === "activity" ? (
                      <Activity status={activity?.status ?? "running"} value={activity?.value ?? null} />
                    ) : item.kind === "end" ? (
                      <div className="h-3" />
                    ) : (
                      <ItemView item={item} told={told} isOpen={isOpen} />
                    )}
                  </div>
                )
              );
            })}
          </div>
        </div>
      </div>
      {isAway && (
        <Button small onClick={toEnd} icon={<ArrowDown size={13} />} className="absolute bottom-3 left-1/2 -translate-x-1/2 rounded-full! shadow-md">
          {isOpen ? "Jump to live" : "Jump to the end"}
        </Button>
      )}
    </div>
  );
}

const ItemView = memo(function ItemView({ item, told, isOpen }: { item: Extract<Item, { kind: "block" | "live" }>; told: RunTranscript | undefined; isOpen: boolean }) {
  if (item.kind === "live") return <LiveView preview={item.preview} />;
  const { block } = item;
  if (block.kind !== "call") return <BlockView block={block} />;
  return <CallCard block={block satisfies CallBlock} run={block.result ? undefined : told} ordinal={item.ordinal} isOpenRun={isOpen} />;
});

function Top({ isLoading, isWhole, problem }: { isLoading: boolean; isWhole: boolean; problem: string | null }) {
  if (problem) return <Line>Older entries could not be loaded: {problem}</Line>;
  if (isLoading) {
    return (
      <p role="status" className="flex items-center justify-center gap-2 py-2 text-xs text-faint">
        <Loader2 size={13} className="animate-spin" aria-hidden />
        Older entries…
      </p>
    );
  }
  return isWhole ? <Line>The beginning</Line> : <div className="h-4" />;
}
