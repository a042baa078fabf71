// The head of a screen: its name, what it can do, and the room below that scrolls.
import type { ReactNode } from "react";

export function PageHead({ title, children, below }: { title: ReactNode; children?: ReactNode; below?: ReactNode }) {
  return (
    <header className="shrink-0 border-b border-line bg-surface">
      <div className="flex min-h-12 flex-wrap items-center gap-x-3 gap-y-1 px-4 py-1.5">
        <h1 className="mr-auto min-w-0 truncate text-base font-semibold">{title}</h1>
        {children}
      </div>
      {below}
    </header>
  );
}

export function PageBody({ children }: { children: ReactNode }) {
  return <div className="min-h-0 flex-1 overflow-y-auto">{children}</div>;
}

export function Section({ title, children, aside }: { title: string; children: ReactNode; aside?: ReactNode }) {
  return (
    <section className="flex flex-col gap-2">
      <div className="flex items-center gap-2">
        <h2 className="text-sm font-semibold">{title}</h2>
        <div className="ml-auto">{aside}</div>
      </div>
      {children}
    </section>
  );
}
