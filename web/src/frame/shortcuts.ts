// Keys that work everywhere: `g` and a letter goes to a place, `/` to the search of the page, `c` to the composer of a run, Ctrl-K or ⌘K to the palette.
import { useNavigate } from "@tanstack/react-router";
import { useEffect } from "react";
import { places } from "./places";

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function useShortcuts(openPalette: () => void): void {
  const navigate = useNavigate();
  useEffect(() => {
    let goes = 0;
    const onKey = (event: KeyboardEvent) => {
      if ((event.metaKey || event.ctrlKey) && !event.altKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        openPalette();
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      if (event.key === "g") {
        goes = event.timeStamp;
        return;
      }
      if (event.key === "/" || event.key === "c") {
        const search = document.querySelector<HTMLElement>(event.key === "c" ? "[data-composer]" : "[data-search]");
        if (search) {
          event.preventDefault();
          search.focus();
        }
        return;
      }
      if (event.timeStamp - goes > 1_200) return;
      goes = 0;
      const place = places.find((each) => each.key === event.key);
      if (place) void navigate({ to: place.to });
      else if (event.key === "n") void navigate({ to: "/runs/new" });
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [navigate, openPalette]);
}
