// Signing in: by the one-click link, whose code stands behind the # and is used at once, or by a key.
import { asProblem } from "@flovyn/react/client";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import type { FormEvent } from "react";
import { sessionQuery } from "../api/queries";
import { signIn } from "../api/session";
import { Button } from "../parts/button";
import { TextField } from "../parts/field";

/** The code of the link, taken out of the address so that it stays in no history. */
function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code !== null) history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}

export function SignIn() {
  const navigate = useNavigate();
  const router = useRouter();
  const client = useQueryClient();
  const { next } = useSearch({ from: "/sign-in" });
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);

  const enter = async (by: { code: string } | { token: string }) => {
    setBusy(true);
    setError(null);
    try {
      client.setQueryData(sessionQuery.queryKey, await signIn(by));
      setKey("");
      // Only an address of this page is gone to.
      if (next?.startsWith("/") && !/^\/[/\\]/.test(next) && !next.startsWith("/sign-in")) router.history.replace(next);
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
      const code = takeCode();
      if (code) void latest.current({ code });
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
        <TextField
          label="API key"
          type="password"
          autoComplete="current-password"
          autoFocus
          value={key}
          onChange={(event) => setKey(event.target.value)}
          placeholder="fk_… or the token of flovyn dev"
          error={error}
        />
        <Button type="submit" tone="primary" busy={busy} disabled={!key.trim()}>
          Sign in
        </Button>
        <p className="text-xs text-faint">
          The server prints a link that signs you in with one click. The key is sent to this server alone and is not kept in the browser: a cookie that scripts cannot read stands for it.
        </p>
      </form>
    </main>
  );
}
