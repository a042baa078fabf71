// Dialogs, on the browser's own <dialog>: focus, Escape and the background are its business, and it injects no styles.
import { X } from "lucide-react";
import { useEffect, useId, useRef } from "react";
import type { ReactNode } from "react";
import { IconButton } from "./button";
import { classNames } from "./class_names";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  footer?: ReactNode;
  wide?: boolean;
}

/** Open for as long as it is rendered. */
export function Dialog({ title, onClose, children, footer, wide = false }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === element.current) onClose();
      }}
      className={classNames(
        "max-h-[min(90dvh,52rem)] w-[calc(100vw-1.5rem)] overflow-hidden rounded-xl border border-line bg-surface p-0 text-ink shadow-2xl",
        wide ? "max-w-4xl" : "max-w-lg",
      )}
    >
      <div className="flex max-h-[inherit] flex-col">
        <header className="flex items-center justify-between gap-2 border-b border-line py-2 pr-2 pl-4">
          <h2 id={heading} className="font-semibold">
            {title}
          </h2>
          <IconButton label="Close" onClick={onClose}>
            <X size={16} />
          </IconButton>
        </header>
        <div className="min-h-0 flex-1 overflow-y-auto p-4">{children}</div>
        {footer && <footer className="flex flex-wrap justify-end gap-2 border-t border-line px-4 py-3">{footer}</footer>}
      </div>
    </dialog>
  );
}
