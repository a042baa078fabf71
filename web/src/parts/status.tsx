// The status of a run as a dot and a word. The word always stands beside the dot: colour alone says nothing.
import { classNames } from "./class_names";

const looks: Record<string, { word: string; dot: string; ink: string; moving?: boolean; hollow?: boolean }> = {
  PENDING: { word: "Pending", dot: "border-line-strong", ink: "text-soft", hollow: true },
  RUNNING: { word: "Running", dot: "bg-blue", ink: "text-blue", moving: true },
  WAITING: { word: "Waiting", dot: "bg-amber", ink: "text-amber" },
  PAUSED: { word: "Paused", dot: "bg-violet", ink: "text-violet" },
  CANCELLING: { word: "Cancelling", dot: "bg-red", ink: "text-red", moving: true },
  COMPLETED: { word: "Completed", dot: "bg-green", ink: "text-green" },
  FAILED: { word: "Failed", dot: "bg-red", ink: "text-red" },
  CANCELLED: { word: "Cancelled", dot: "bg-line-strong", ink: "text-soft" },
  IN_DOUBT: { word: "In doubt", dot: "bg-amber", ink: "text-amber" },
  QUARANTINED: { word: "Quarantined", dot: "bg-red", ink: "text-red" },
};

export const STATUSES = ["RUNNING", "WAITING", "PAUSED", "PENDING", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED"] as const;

export function statusWord(status: string): string {
  return looks[status]?.word ?? status;
}

export function Status({ status, className }: { status: string; className?: string }) {
  const look = looks[status] ?? { word: status, dot: "bg-line-strong", ink: "text-soft" };
  return (
    <span className={classNames("inline-flex items-center gap-1.5 whitespace-nowrap text-sm", look.ink, className)}>
      <span aria-hidden className={classNames("size-2 rounded-full", look.dot, look.moving && "pulse", look.hollow && "border-[1.5px]")} />
      {look.word}
    </span>
  );
}
