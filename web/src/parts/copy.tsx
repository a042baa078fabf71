// Copies a text, and says that it did.
import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { IconButton } from "./button";
import { say } from "./toast";

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    say("The browser does not let this page copy. Select the text and copy it by hand.", true);
    return false;
  }
}

export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    if (!(await copyText(typeof text === "string" ? text : text()))) return;
    setDone(true);
    setTimeout(() => setDone(false), 1_500);
  };
  return (
    <IconButton small label={done ? "Copied" : label} onClick={() => void copy()}>
      {done ? <Check size={14} /> : <Copy size={14} />}
    </IconButton>
  );
}
