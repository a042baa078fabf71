// What the parts of a chat share: the run, how text is drawn, and what is said beside it.
import { createContext, useCallback, useContext, useState } from "react";
import type { ReactNode } from "react";
import { asProblem } from "../client/index.js";
import type { UseRun } from "../hooks/use_run.js";
import type { CallBlock } from "../transcript/index.js";
import type { ChatLabels } from "./labels.js";

export interface ChatContextValue {
  readonly chat: UseRun;
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
