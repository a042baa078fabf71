// Signing in: by the one-click link, whose code stands behind the # and is used at once, or by a key.
import { asProblem } from "@flovyn/react/client";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import type { FormEvent } from "react";
import { sessionQuery } from "../api/queries";
import { signIn, signInIssuer } from "../api/session";
import { Button, buttonClass } from "../parts/button";
import { TextField } from "../parts/field";

/** What stands behind the #, the code of a link or why the issuer lets nobody in, taken out so that it stays in no history. */
function takeHash(): { code: string | null; refused: string | null } {
  const told = new URLSearchParams(location.hash.slice(1));
  const taken = { code: told.get("code"), refused: told.get("refused") };
  if (taken.code !== null || taken.refused !== null) history.replaceState(history.state, "", location.pathname + location.search);
  return taken;
}

/** Why an issuer's people are not signed in, by the server's word for it. */
const REFUSED = new Map([
  ["denied", "You were not signed in there."],
  ["stale", "This took too long, or was begun in another browser. Try again."],
  ["no-grant", "You are known there, but may do nothing here. Ask whoever runs this server for a group that may."],
  ["failed", "The sign-in service can not be asked, or its answer can not be trusted. The log of the server says more."],
]);

/** Whether an address is one of this console's pages. */
const isPage = (next: string | undefined): next is string => !!next?.startsWith("/") && !/^\/[/\\]/.test(next) && !next.startsWith("/sign-in");

export function SignIn() {
  const navigate = useNavigate();
  const router = useRouter();
  const client = useQueryClient();
  const { next } = useSearch({ from: "/sign-in" });
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [refusal, setRefusal] = useState<string | null>(null);
  const issuer = useQuery({ queryKey: ["sign-in-issuer"], queryFn: signInIssuer, staleTime: Number.POSITIVE_INFINITY }).data;

  const enter = async (by: { code: string } | { token: string }) => {
    setBusy(true);
    setError(null);
    try {
      client.setQueryData(sessionQuery.queryKey, await signIn(by));
      setKey("");
      if (isPage(next)) router.history.replace(next);
      else await navigate({ to: "/runs", replace: true });
    } catch (found) {
      const problem = asProblem(found);
      const used = "code" in by ? "This link no longer works: it is used up or too old. Ask for a new one, or sign in with a key." : "The server does not know this key.";
      setError(problem.status === 401 ? used : problem.detail || problem.title);
    } finally {
      setBusy(false);
    }
  };

  const latest = useRef(enter);
  latest.current = enter;
  useEffect(() => {
    const useCode = () => {
      const { code, refused } = takeHash();
      if (code) void latest.current({ code });
      else if (refused !== null) setRefusal(REFUSED.get(refused) ?? "You were not signed in.");
    };
    useCode();
    // A link that is followed on this very page changes no more than what stands behind the #.
    window.addEventListener("hashchange", useCode);
    return () => window.removeEventListener("hashchange", useCode);
  }, []);

  const onSubmit = (event: FormEvent) => {
    event.preventDefault();
    if (key.trim()) void enter({ token: key.trim() });
  };

  return (
    <main className="flex h-dvh items-center justify-center overflow-y-auto p-4">
      <form onSubmit={onSubmit} className="flex w-full max-w-sm flex-col gap-4 rounded-xl border border-line bg-surface p-6 shadow-sm">
        <div className="flex items-center gap-2.5">
          <img src="/icon.svg" alt="" width={28} height={28} />
          <h1 className="text-lg font-semibold">Sign in to Flovyn</h1>
        </div>
        {refusal && (
          <p role="alert" className="rounded-md bg-red-ground px-3 py-2 text-sm text-red">
            {refusal}
          </p>
        )}
        {issuer && (
          <>
            <a className={buttonClass("primary")} href={`${issuer.href}?next=${encodeURIComponent(isPage(next) ? next : "/runs")}`}>
              Sign in with {issuer.label}
            </a>
            <p className="flex items-center gap-3 text-xs text-faint before:h-px before:flex-1 before:bg-line after:h-px after:flex-1 after:bg-line">or with a key</p>
          </>
        )}
        <TextField
          label="API key"
          type="password"
          autoComplete="current-password"
          autoFocus={!issuer}
          value={key}
          onChange={(event) => setKey(event.target.value)}
          placeholder="fk_… or the token of flovyn dev"
          error={error}
        />
        <Button type="submit" tone={issuer ? "plain" : "primary"} busy={busy} disabled={!key.trim()}>
          Sign in
        </Button>
        <p className="text-xs text-faint">
          The server prints a link that signs you in with one click. The key is sent to this server alone and is not kept in the browser: a cookie that scripts cannot read stands for it.
        </p>
      </form>
    </main>
  );
}
