// Buttons, and links that look like them.
import { Loader2 } from "lucide-react";
import type { ButtonHTMLAttributes, ReactNode } from "react";
import { classNames } from "./class_names";

export type ButtonTone = "plain" | "primary" | "danger" | "quiet";

const tones: Record<ButtonTone, string> = {
  plain: "border border-line bg-surface hover:bg-hover text-ink",
  primary: "border border-transparent bg-accent text-on-accent hover:opacity-90",
  danger: "border border-line bg-surface text-red hover:bg-red-ground",
  quiet: "border border-transparent text-soft hover:bg-hover hover:text-ink",
};

/** The classes of a button, for links that are one. */
export function buttonClass(tone: ButtonTone = "plain", small = false): string {
  return classNames(
    "inline-flex shrink-0 items-center justify-center gap-1.5 whitespace-nowrap rounded-md font-medium transition-colors disabled:opacity-50",
    small ? "h-7 px-2 text-xs" : "h-8 px-3 text-sm",
    tones[tone],
  );
}

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  tone?: ButtonTone;
  small?: boolean;
  busy?: boolean;
  icon?: ReactNode;
}

export function Button({ tone = "plain", small = false, busy = false, icon, children, className, disabled, ...rest }: ButtonProps) {
  return (
    <button type="button" {...rest} disabled={disabled || busy} className={classNames(buttonClass(tone, small), className)}>
      {busy ? <Loader2 size={14} className="animate-spin" aria-hidden /> : icon}
      {children}
    </button>
  );
}

interface IconButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  label: string;
  small?: boolean;
}

/** A button that is a picture; its label is what it is called. */
export function IconButton({ label, small = false, className, children, ...rest }: IconButtonProps) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      {...rest}
      className={classNames(
        "inline-flex shrink-0 items-center justify-center rounded-md text-soft transition-colors hover:bg-hover hover:text-ink disabled:opacity-50",
        small ? "size-7" : "size-8",
        className,
      )}
    >
      {children}
    </button>
  );
}
