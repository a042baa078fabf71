// The connection pill: how the tab's stream stands, or whether the server answers at all.
import { asProblem } from "@flovyn/react/client";
import { onlineManager, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useConnection } from "../live/connection";
import { classNames } from "../parts/class_names";
import { formatClock } from "../parts/format";

interface Look {
  readonly word: string;
  readonly dot: string;
}

/** The moment since when no request was answered; null while they are. */
function useUnanswered(): number | null {
  const client = useQueryClient();
  const [since, setSince] = useState<number | null>(null);
  useEffect(
    () =>
      client.getQueryCache().subscribe((event) => {
        if (event.type !== "updated") return;
        if (event.action.type === "success") setSince(null);
        else if (event.action.type === "error" || event.action.type === "failed") {
          if (asProblem(event.action.error).status === 0) setSince((before) => before ?? Date.now());
        }
      }),
    [client],
  );
  return since;
}

export function Pill() {
  const connection = useConnection();
  const unanswered = useUnanswered();
  const look: Look =
    connection === "reconnecting"
      ? { word: "Reconnecting", dot: "bg-amber pulse" }
      : unanswered !== null || !onlineManager.isOnline()
        ? { word: unanswered ? `Stale since ${formatClock(new Date(unanswered).toISOString())}` : "Offline", dot: "bg-red" }
        : connection === "connecting"
          ? { word: "Connecting", dot: "bg-amber pulse" }
          : connection === "live"
            ? { word: "Live", dot: "bg-green" }
            : { word: "Connected", dot: "bg-green" };
  return (
    <span role="status" data-testid="connection" className="inline-flex items-center gap-1.5 rounded-full border border-line px-2 py-0.5 text-xs text-soft">
      <span aria-hidden className={classNames("size-1.5 rounded-full", look.dot)} />
      {look.word}
    </span>
  );
}
