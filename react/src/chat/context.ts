// What the parts of a chat share. What stays for as long as the run does is apart from what changes with each word that is written,
// so that a conversation is not drawn anew for each.
import { createContext, useCallback, useContext, useState } from "react";
import type { ReactNode } from "react";
import { asProblem } from "../client/index.js";
import type { UseRun } from "../hooks/use_run.js";
import type { CallBlock } from "../transcript/index.js";
import type { ChatLabels } from "./labels.js";

export interface ChatContextValue {
  /** What is done to the run in place. */
  readonly actions: Pick<UseRun, "approve" | "deny" | "answer" | "loadEntry">;
  readonly labels: ChatLabels;
  readonly renderMarkdown: ((text: string) => ReactNode) | undefined;
  readonly renderCall: ((block: CallBlock) => ReactNode) | undefined;
}

export const ChatContext = createContext<ChatContextValue | null>(null);

export function useChat(): ChatContextValue {
  const chat = useContext(ChatContext);
  if (!chat) throw new Error("This is drawn outside of a <Chat>.");
  return chat;
}

export const LiveContext = createContext<UseRun | null>(null);

/** The run as it is at this moment: who uses it is drawn with each word that is written. */
export function useLive(): UseRun {
  const run = useContext(LiveContext);
  if (!run) throw new Error("This is drawn outside of a <Chat>.");
  return run;
}

/** Runs one action at a time, and keeps why the last one failed. */
export function useAction(): { readonly isBusy: boolean; readonly error: string | null; run(action: () => Promise<void>): Promise<boolean> } {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const run = useCallback(async (action: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await action();
      return true;
    } catch (failure) {
      setError(asProblem(failure).message);
      return false;
    } finally {
      setBusy(false);
    }
  }, []);
  return { isBusy, error, run };
}
