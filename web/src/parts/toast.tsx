// Short words about what was just done, at the foot of the page; they are read aloud and go by themselves.
import { useSyncExternalStore } from "react";
import { classNames } from "./class_names";

interface Toast {
  readonly id: number;
  readonly text: string;
  readonly bad: boolean;
}

let toasts: readonly Toast[] = [];
let next = 0;
const listeners = new Set<() => void>();

function change(to: readonly Toast[]): void {
  toasts = to;
  for (const listener of listeners) listener();
}

/** Says something; what went wrong stays longer. */
export function say(text: string, bad = false): void {
  const toast = { id: next++, text, bad };
  change([...toasts.slice(-3), toast]);
  setTimeout(() => change(toasts.filter((each) => each !== toast)), bad ? 9_000 : 4_000);
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => toasts,
  );
  return (
    <div aria-live="polite" className="pointer-events-none fixed inset-x-0 bottom-16 z-50 flex flex-col items-center gap-2 px-4 md:bottom-6">
      {shown.map((toast) => (
        <div
          key={toast.id}
          className={classNames(
            "pointer-events-auto max-w-lg rounded-lg border px-3 py-2 text-sm shadow-lg [overflow-wrap:anywhere]",
            toast.bad ? "border-red/40 bg-red-ground text-red" : "border-line bg-surface",
          )}
        >
          {toast.text}
        </div>
      ))}
    </div>
  );
}
