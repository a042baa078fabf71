// Something that is done at the server: busy while it is, and told where it fails.
import { asProblem } from "@flovyn/react/client";
import { useState } from "react";
import { say } from "./toast";

export function useAction(): { busy: boolean; run: (call: () => Promise<unknown>, done?: string) => Promise<boolean> } {
  const [busy, setBusy] = useState(false);
  const run = async (call: () => Promise<unknown>, done?: string) => {
    setBusy(true);
    try {
      await call();
      if (done) say(done);
      return true;
    } catch (error) {
      const problem = asProblem(error);
      say(problem.status === 409 ? `Already decided or changed: ${problem.detail || problem.title}` : problem.detail || problem.title, true);
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { busy, run };
}
