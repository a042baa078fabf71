// Menus of actions. Not modal: a modal one would lock scrolling with a style tag, which the policy forbids.
import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";
import { classNames } from "./class_names";

export function Menu({ trigger, children }: { trigger: ReactNode; children: ReactNode }) {
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content align="end" sideOffset={4} collisionPadding={8} className="z-40 min-w-44 rounded-lg border border-line bg-surface p-1 shadow-lg">
          {children}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

export function MenuItem({ onSelect, danger = false, disabled = false, icon, children }: { onSelect: () => void; danger?: boolean; disabled?: boolean; icon?: ReactNode; children: ReactNode }) {
  return (
    <DropdownMenu.Item
      onSelect={onSelect}
      disabled={disabled}
      className={classNames("flex cursor-pointer items-center gap-2 rounded px-2 py-1.5 text-sm outline-none data-[disabled]:opacity-40 data-[highlighted]:bg-hover", danger && "text-red")}
    >
      {icon}
      {children}
    </DropdownMenu.Item>
  );
}
