// Light or dark: as the system says, or as the reader has chosen. The choice stays in this browser.
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
const KEY = "flovyn.theme";
const listeners = new Set<() => void>();

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
}

let current: Theme = "system";

/** Called before anything is drawn, so that nothing flashes. */
export function applyTheme(theme: Theme = stored()): void {
  current = theme;
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  for (const listener of listeners) listener();
}

export function chooseTheme(theme: Theme): void {
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // A browser that stores nothing forgets the choice with the tab.
  }
  applyTheme(theme);
}

export function useTheme(): Theme {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}
