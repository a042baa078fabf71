// Plain tables: they scroll sideways where the screen is narrow.
import type { ReactNode } from "react";
import { classNames } from "./class_names";

export function Table({ head, children, label }: { head: readonly ReactNode[]; children: ReactNode; label: string }) {
  return (
    <div tabIndex={0} role="region" aria-label={label} className="overflow-x-auto rounded-lg border border-line bg-surface">
      <table className="w-full border-collapse text-sm">
        <thead>
          <tr className="border-b border-line bg-raised text-left text-xs text-soft">
            {head.map((each, index) => (
              <th key={index} scope="col" className="px-3 py-1.5 font-medium whitespace-nowrap">
                {each}
              </th>
            ))}
          </tr>
        </thead>
        <tbody className="divide-y divide-line">{children}</tbody>
      </table>
    </div>
  );
}

export function Cell({ children, number = false, className }: { children?: ReactNode; number?: boolean; className?: string }) {
  return <td className={classNames("px-3 py-1.5 align-middle", number && "text-right tabular-nums", className)}>{children}</td>;
}
