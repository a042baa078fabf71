// The frame around every screen: a rail on wide screens, a bar on phones, the pill, the palette.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useNavigate } from "@tanstack/react-router";
import { LogOut, Monitor, Moon, MoreHorizontal, Search, Sun } from "lucide-react";
import { Suspense, lazy, useCallback, useEffect, useState } from "react";
import { onSignedOut } from "../api/client";
import { sessionQuery, waitingQuery } from "../api/queries";
import { signOut } from "../api/session";
import { IconButton } from "../parts/button";
import { classNames } from "../parts/class_names";
import { Failed } from "../parts/states";
import { Toasts, say } from "../parts/toast";
import { Pill } from "./pill";
import { ON_PHONES, places } from "./places";
import { useShortcuts } from "./shortcuts";
import { chooseTheme, useTheme } from "./theme";

const Palette = lazy(() => import("./palette"));

const themes = { system: { next: "light", icon: Monitor, word: "as the system" }, light: { next: "dark", icon: Sun, word: "light" }, dark: { next: "system", icon: Moon, word: "dark" } } as const;

export function Frame() {
  const [isPaletteOpen, setPaletteOpen] = useState(false);
  const openPalette = useCallback(() => setPaletteOpen(true), []);
  const navigate = useNavigate();
  const client = useQueryClient();
  const session = useQuery(sessionQuery);
  const waiting = useQuery({ ...waitingQuery, enabled: session.isSuccess });
  const open = waiting.data?.length ?? 0;
  useShortcuts(openPalette);

  const toSignIn = useCallback(() => {
    client.clear();
    void navigate({ to: "/sign-in", search: { next: location.pathname + location.search } });
  }, [client, navigate]);
  useEffect(() => onSignedOut(toSignIn), [toSignIn]);
  useEffect(() => {
    document.title = open ? `(${open}) Flovyn` : "Flovyn";
  }, [open]);

  const leave = async () => {
    try {
      await signOut();
      client.clear();
      await navigate({ to: "/sign-in", search: {} });
    } catch (error) {
      say(error instanceof Error ? error.message : String(error), true);
    }
  };

  if (session.isLoadingError) return <Failed error={session.error} onRetry={() => void session.refetch()} />;
  return (
    <div className="flex h-dvh flex-col md:flex-row">
      <a href="#content" className="sr-only z-50 rounded bg-surface px-3 py-2 focus:not-sr-only focus:fixed focus:top-2 focus:left-2">
        To the content
      </a>
      <nav aria-label="Places" className="hidden w-48 shrink-0 flex-col border-r border-line bg-raised md:flex">
        <Link to="/runs" className="flex h-12 items-center gap-2 px-4 font-semibold tracking-tight">
          <img src="/icon.svg" alt="" width={20} height={20} />
          Flovyn
        </Link>
        <button type="button" onClick={openPalette} className="mx-2 mb-2 flex h-8 items-center gap-2 rounded-md border border-line bg-surface px-2.5 text-sm text-faint hover:text-ink">
          <Search size={14} aria-hidden />
          Search
          <kbd className="ml-auto font-mono text-xs">⌘K</kbd>
        </button>
        <ul className="flex-1 overflow-y-auto px-2">
          {places.map((place) => (
            <li key={place.to}>
              <Link
                to={place.to}
                className="flex h-8 items-center gap-2.5 rounded-md px-2.5 text-sm text-soft hover:bg-hover hover:text-ink data-[status=active]:bg-accent-ground data-[status=active]:font-medium data-[status=active]:text-accent"
              >
                <place.icon size={15} aria-hidden />
                {place.name}
                {place.to === "/approvals" && open > 0 && <Badge count={open} />}
              </Link>
            </li>
          ))}
        </ul>
        <div className="flex flex-col gap-1 border-t border-line p-2">
          <div className="px-1 pb-1">
            <Pill />
          </div>
          <div className="flex items-center gap-1">
            <span title={session.data?.scopes} className="min-w-0 flex-1 truncate px-1.5 text-xs text-faint">
              {session.data?.name}
            </span>
            <ThemeSwitch />
            <IconButton small label="Sign out" onClick={() => void leave()}>
              <LogOut size={14} />
            </IconButton>
          </div>
        </div>
      </nav>
      <main id="content" tabIndex={-1} className="relative flex min-h-0 min-w-0 flex-1 flex-col outline-none">
        <Outlet />
      </main>
      <nav aria-label="Places" className="flex shrink-0 border-t border-line bg-raised pb-[env(safe-area-inset-bottom)] md:hidden">
        {places.slice(0, ON_PHONES).map((place) => (
          <Link key={place.to} to={place.to} className="relative flex h-13 min-w-0 flex-1 flex-col items-center justify-center gap-0.5 text-xs text-soft data-[status=active]:text-accent">
            <place.icon size={17} aria-hidden />
            <span className="truncate">{place.name}</span>
            {place.to === "/approvals" && open > 0 && (
              <span className="absolute top-1 left-1/2 ml-2">
                <Badge count={open} />
              </span>
            )}
          </Link>
        ))}
        <button type="button" onClick={openPalette} className="flex h-13 min-w-0 flex-1 flex-col items-center justify-center gap-0.5 text-xs text-soft">
          <MoreHorizontal size={17} aria-hidden />
          More
        </button>
      </nav>
      <Toasts />
      {isPaletteOpen && (
        <Suspense>
          <Palette onClose={() => setPaletteOpen(false)} />
        </Suspense>
      )}
    </div>
  );
}

function Badge({ count }: { count: number }) {
  return (
    <span className={classNames("ml-auto rounded-full bg-amber-ground px-1.5 text-xs font-medium text-amber")}>
      <span className="sr-only">waiting: </span>
      {count}
    </span>
  );
}

function ThemeSwitch() {
  const theme = useTheme();
  const { next, icon: Icon, word } = themes[theme];
  return (
    <IconButton small label={`Theme: ${word}. Change it.`} onClick={() => chooseTheme(next)}>
      <Icon size={14} />
    </IconButton>
  );
}
