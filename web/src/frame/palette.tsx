// The palette: every place, the newest runs, and a run by its id, from the keyboard.
import { titleOf } from "@flovyn/react/client";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Command } from "cmdk";
import { CornerDownLeft, Plus, SunMoon } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { newestRunsQuery } from "../api/queries";
import { Status } from "../parts/status";
import { places } from "./places";
import { chooseTheme } from "./theme";

const item = "flex cursor-pointer items-center gap-2.5 rounded-md px-2.5 py-1.5 text-sm data-[selected=true]:bg-hover";
const heading = "[&_[cmdk-group-heading]]:px-2.5 [&_[cmdk-group-heading]]:pt-2 [&_[cmdk-group-heading]]:pb-1 [&_[cmdk-group-heading]]:text-xs [&_[cmdk-group-heading]]:text-faint";

const BY_ID = "by id ";

/** All words have to be in it; what opens a run by its id comes last. */
function match(value: string, search: string): number {
  if (value.startsWith(BY_ID)) return 0.01;
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.every((word) => value.toLowerCase().includes(word))) return 0;
  return value.toLowerCase().startsWith(words[0] ?? "") ? 1 : 0.5;
}

export default function Palette({ onClose }: { onClose: () => void }) {
  const element = useRef<HTMLDialogElement>(null);
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const runs = useQuery({ ...newestRunsQuery({}), refetchInterval: false });
  useEffect(() => {
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
  }, []);
  const go = (call: () => void) => () => {
    onClose();
    call();
  };
  const run = (id: string) => go(() => void navigate({ to: "/runs/$id", params: { id } }));
  return (
    <dialog
      ref={element}
      aria-label="Commands"
      onCancel={onClose}
      onMouseDown={(event) => {
        if (event.target === element.current) onClose();
      }}
      className="mt-[12dvh] w-[calc(100vw-1.5rem)] max-w-xl overflow-hidden rounded-xl border border-line bg-surface p-0 text-ink shadow-2xl"
    >
      <Command label="Commands" loop filter={match}>
        <Command.Input
          autoFocus
          value={text}
          onValueChange={setText}
          placeholder="Go to a place, or to a run by its id or words…"
          className="h-11 w-full border-b border-line bg-transparent px-4 text-base outline-none placeholder:text-faint"
        />
        <Command.List className="max-h-[50dvh] overflow-y-auto p-1.5">
          <Command.Empty className="p-4 text-sm text-faint">Nothing is called that.</Command.Empty>
          <Command.Group heading="Places" className={heading}>
            {places.map((place) => (
              <Command.Item key={place.to} value={place.name} className={item} onSelect={go(() => void navigate({ to: place.to }))}>
                <place.icon size={15} aria-hidden className="text-faint" />
                {place.name}
                <kbd className="ml-auto font-mono text-xs text-faint">g {place.key}</kbd>
              </Command.Item>
            ))}
            <Command.Item value="New run start" className={item} onSelect={go(() => void navigate({ to: "/runs/new" }))}>
              <Plus size={15} aria-hidden className="text-faint" />
              New run
              <kbd className="ml-auto font-mono text-xs text-faint">g n</kbd>
            </Command.Item>
          </Command.Group>
          <Command.Group heading="Runs" className={heading}>
            {runs.data?.items.slice(0, 50).map((each) => (
              <Command.Item key={each.id} value={`${titleOf(each)} ${each.kind} ${each.key ?? ""} ${each.id}`} className={item} onSelect={run(each.id)}>
                <Status status={each.status} className="w-24" />
                <span className="min-w-0 truncate">{titleOf(each)}</span>
                <span className="ml-auto text-xs text-faint">{each.kind}</span>
              </Command.Item>
            ))}
          </Command.Group>
          <Command.Group heading="Theme" className={heading}>
            {(["system", "light", "dark"] as const).map((theme) => (
              <Command.Item key={theme} value={`theme ${theme}`} className={item} onSelect={go(() => chooseTheme(theme))}>
                <SunMoon size={15} aria-hidden className="text-faint" />
                {theme === "system" ? "As the system" : theme === "light" ? "Light" : "Dark"}
              </Command.Item>
            ))}
          </Command.Group>
          {text.trim() && (
            <Command.Group>
              <Command.Item value={`${BY_ID}${text}`} className={item} onSelect={run(text.trim())}>
                <CornerDownLeft size={15} aria-hidden className="text-faint" />
                <span className="min-w-0 truncate">Open the run with the id “{text.trim()}”</span>
              </Command.Item>
            </Command.Group>
          )}
        </Command.List>
      </Command>
    </dialog>
  );
}
