// Fields of forms: text, choices and switches, each with its label.
import { useId } from "react";
import type { InputHTMLAttributes, ReactNode, SelectHTMLAttributes, TextareaHTMLAttributes } from "react";
import { classNames } from "./class_names";

const look = "w-full rounded-md border border-line-strong/60 bg-surface px-2.5 text-sm text-ink placeholder:text-faint focus-visible:border-accent";

interface Labelled {
  label: string;
  hint?: ReactNode;
  error?: string | null;
}

function Around({ id, label, hint, error, children }: Labelled & { id: string; children: ReactNode }) {
  return (
    <div className="flex min-w-0 flex-col gap-1">
      <label htmlFor={id} className="text-xs font-medium text-soft">
        {label}
      </label>
      {children}
      {hint && <p className="text-xs text-faint">{hint}</p>}
      {error && (
        <p role="alert" className="text-xs text-red">
          {error}
        </p>
      )}
    </div>
  );
}

export function TextField({ label, hint, error, className, ...rest }: Labelled & InputHTMLAttributes<HTMLInputElement>) {
  const id = useId();
  return (
    <Around id={id} label={label} hint={hint} error={error ?? null}>
      <input id={id} {...rest} aria-invalid={error ? true : undefined} className={classNames(look, "h-8", className)} />
    </Around>
  );
}

export function TextArea({ label, hint, error, className, ...rest }: Labelled & TextareaHTMLAttributes<HTMLTextAreaElement>) {
  const id = useId();
  return (
    <Around id={id} label={label} hint={hint} error={error ?? null}>
      <textarea id={id} rows={4} {...rest} aria-invalid={error ? true : undefined} className={classNames(look, "py-1.5", className)} />
    </Around>
  );
}

export function SelectField({ label, hint, error, className, children, ...rest }: Labelled & SelectHTMLAttributes<HTMLSelectElement>) {
  const id = useId();
  return (
    <Around id={id} label={label} hint={hint} error={error ?? null}>
      <select id={id} {...rest} className={classNames(look, "h-8", className)}>
        {children}
      </select>
    </Around>
  );
}

/** A choice in a line of filters; its label is for those who cannot see where it stands. */
export function InlineSelect({ label, className, children, ...rest }: { label: string } & SelectHTMLAttributes<HTMLSelectElement>) {
  return (
    <select aria-label={label} {...rest} className={classNames("h-8 rounded-md border border-line bg-surface px-2 text-sm text-ink", className)}>
      {children}
    </select>
  );
}

export function Check({ label, ...rest }: { label: ReactNode } & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <label className="inline-flex min-h-6 cursor-pointer items-center gap-2 text-sm">
      <input type="checkbox" {...rest} className="size-4 accent-(--accent)" />
      {label}
    </label>
  );
}
