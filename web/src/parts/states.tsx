// What stands where there is nothing yet, nothing at all, or something that went wrong.
import { asProblem } from "@flovyn/react/client";
import { Loader2 } from "lucide-react";
import type { ReactNode } from "react";
import { Button } from "./button";

export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <div role="status" className="flex items-center gap-2 p-6 text-sm text-faint">
      <Loader2 size={15} className="animate-spin" aria-hidden />
      {what}…
    </div>
  );
}

export function Empty({ title, children, icon }: { title: string; children?: ReactNode; icon?: ReactNode }) {
  return (
    <div className="mx-auto flex max-w-xl flex-col items-center gap-2 px-6 py-16 text-center">
      {icon && <div className="mb-1 text-faint">{icon}</div>}
      <p className="text-base font-medium">{title}</p>
      {children && <div className="text-sm text-soft">{children}</div>}
    </div>
  );
}

/** What went wrong, in the server's words, with what to do. */
export function Failed({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const problem = asProblem(error);
  return (
    <div role="alert" className="m-4 max-w-2xl rounded-lg border border-red/40 bg-red-ground p-4 text-sm">
      <p className="font-medium text-red">{problem.title}</p>
      {problem.detail && <p className="mt-1 text-ink [overflow-wrap:anywhere]">{problem.detail}</p>}
      <p className="mt-1 font-mono text-xs text-soft">{problem.code}</p>
      {onRetry && (
        <Button small className="mt-3" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}
