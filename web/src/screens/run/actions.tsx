// What people do to a run as a whole: stop, go on, fork, export, copy, remove.
import { canGoOn } from "@flovyn/react/client";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Ban, Copy, Download, GitFork, MoreHorizontal, Play, RotateCcw, Trash2, Zap } from "lucide-react";
import { useState } from "react";
import { decideDivergence, fork, remove, resume, retry, stop } from "../../api/steer";
import { Button, IconButton } from "../../parts/button";
import { copyText } from "../../parts/copy";
import { Dialog } from "../../parts/dialog";
import { Check, TextArea, TextField } from "../../parts/field";
import { Menu, MenuItem } from "../../parts/menu";
import { say } from "../../parts/toast";
import { useAction } from "../../parts/use_action";
import { exportRun } from "./export";
import { useShown } from "./shown";

type Asking = "stop" | "go on" | "fork" | "remove" | null;

export function Actions() {
  const { run } = useShown();
  const client = useQueryClient();
  const navigate = useNavigate();
  const action = useAction();
  const [asking, setAsking] = useState<Asking>(null);
  const refresh = () => client.invalidateQueries({ queryKey: ["run"] });
  const isOpen = canGoOn(run);
  const wasAsked = run.cancelRequested || run.status === "CANCELLING";
  const copyLink = async () => {
    if (await copyText(`${location.origin}/runs/${run.id}`)) say("The link is copied.");
  };
  return (
    <div className="flex shrink-0 items-center gap-1.5">
      {run.status === "PAUSED" && run.waitReason === "divergence" && (
        <>
          <Button busy={action.busy} onClick={() => void action.run(() => decideDivergence(run.id, "continue").then(refresh), "It goes on with the new code.")}>
            Go on with the new code
          </Button>
          <Button onClick={() => void action.run(() => decideDivergence(run.id, "fork").then(refresh), "It was forked.")}>Fork</Button>
        </>
      )}
      {run.status === "PAUSED" && run.waitReason !== "divergence" && (
        <Button tone="primary" icon={<Play size={13} />} onClick={() => setAsking("go on")}>
          Resume
        </Button>
      )}
      {run.status === "FAILED" && (
        <Button tone="primary" icon={<RotateCcw size={13} />} onClick={() => setAsking("go on")}>
          Retry
        </Button>
      )}
      {isOpen && !wasAsked && (
        <Button icon={<Ban size={13} />} busy={action.busy} onClick={() => setAsking("stop")}>
          Stop
        </Button>
      )}
      {isOpen && wasAsked && (
        <Button tone="danger" icon={<Zap size={13} />} busy={action.busy} onClick={() => void action.run(() => stop(run.id, "hard").then(refresh), "It was stopped.")}>
          Stop at once
        </Button>
      )}
      <Menu
        trigger={
          <IconButton label="More">
            <MoreHorizontal size={16} />
          </IconButton>
        }
      >
        <MenuItem icon={<GitFork size={14} />} onSelect={() => setAsking("fork")}>
          Fork…
        </MenuItem>
        <MenuItem icon={<Copy size={14} />} onSelect={() => void copyLink()}>
          Copy the link
        </MenuItem>
        <MenuItem icon={<Copy size={14} />} onSelect={() => void copyText(run.id)}>
          Copy the id
        </MenuItem>
        <MenuItem icon={<Download size={14} />} onSelect={() => void action.run(() => exportRun(run, "jsonl"))}>
          Export as JSONL
        </MenuItem>
        <MenuItem icon={<Download size={14} />} onSelect={() => void action.run(() => exportRun(run, "markdown"))}>
          Export as Markdown
        </MenuItem>
        <MenuItem icon={<Play size={14} />} onSelect={() => void navigate({ to: "/runs/new", search: { from: run.id } })}>
          Start one like it
        </MenuItem>
        {!isOpen && (
          <MenuItem danger icon={<Trash2 size={14} />} onSelect={() => setAsking("remove")}>
            Remove…
          </MenuItem>
        )}
      </Menu>
      {asking === "stop" && <StopDialog onClose={() => setAsking(null)} />}
      {asking === "go on" && <GoOnDialog onClose={() => setAsking(null)} />}
      {asking === "fork" && <ForkDialog onClose={() => setAsking(null)} point={{}} where="at the last point possible" />}
      {asking === "remove" && (
        <Dialog
          title="Remove this run?"
          onClose={() => setAsking(null)}
          footer={
            <>
              <Button onClick={() => setAsking(null)}>Keep it</Button>
              <Button
                tone="danger"
                busy={action.busy}
                onClick={() =>
                  void action.run(() => remove(run.id), "It is removed.").then((done) => {
                    if (!done) return;
                    client.removeQueries({ queryKey: ["run", run.id] });
                    void navigate({ to: "/runs" });
                  })
                }
              >
                Remove it for good
              </Button>
            </>
          }
        >
          <p className="text-sm">Its conversation, tasks and checkpoints go with it. This cannot be undone.</p>
        </Dialog>
      )}
    </div>
  );
}

function StopDialog({ onClose }: { onClose: () => void }) {
  const { run } = useShown();
  const client = useQueryClient();
  const action = useAction();
  const end = (mode: "graceful" | "hard") => void action.run(() => stop(run.id, mode).then(() => client.invalidateQueries({ queryKey: ["run"] }))).then((done) => done && onClose());
  return (
    <Dialog
      title="Stop this run?"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Let it run</Button>
          <Button tone="danger" busy={action.busy} onClick={() => end("hard")}>
            At once
          </Button>
          <Button tone="primary" busy={action.busy} onClick={() => end("graceful")}>
            Ask it to stop
          </Button>
        </>
      }
    >
      <p className="text-sm">Asked to stop, it may tidy up for 30 seconds and keeps what it has. At once means that it does not. What runs below it stops as well.</p>
    </Dialog>
  );
}

function GoOnDialog({ onClose }: { onClose: () => void }) {
  const { run } = useShown();
  const client = useQueryClient();
  const action = useAction();
  const isRetry = run.status === "FAILED";
  const [message, setMessage] = useState("");
  const [tokens, setTokens] = useState("");
  const [dollars, setDollars] = useState("");
  const [steps, setSteps] = useState("");
  const go = () => {
    const budget = { ...(tokens && { maxTokens: Number(tokens) }), ...(dollars && { maxCostUsd: Number(dollars) }) };
    const body = { ...(message && { message }), ...(steps && { maxSteps: Number(steps) }), ...(Object.keys(budget).length && { budget }) };
    void action.run(() => (isRetry ? retry(run.id, body) : resume(run.id, body)).then(() => client.invalidateQueries({ queryKey: ["run"] }))).then((done) => done && onClose());
  };
  return (
    <Dialog
      title={isRetry ? "Retry from the last commit" : "Resume"}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Back</Button>
          <Button tone="primary" busy={action.busy} onClick={go}>
            {isRetry ? "Retry" : "Resume"}
          </Button>
        </>
      }
    >
      <div className="flex flex-col gap-3">
        <p className="text-sm text-soft">{isRetry ? "What has its result is not done again." : "It goes on where it paused."} All of this may stay empty.</p>
        <TextArea label="A message to append first" value={message} onChange={(event) => setMessage(event.target.value)} rows={2} />
        <div className="grid grid-cols-3 gap-3">
          <TextField label="Tokens at most" inputMode="numeric" value={tokens} onChange={(event) => setTokens(event.target.value.replace(/\D/g, ""))} />
          <TextField label="US dollars at most" inputMode="decimal" value={dollars} onChange={(event) => setDollars(event.target.value.replace(/[^\d.]/g, ""))} />
          <TextField label="Steps at most" inputMode="numeric" value={steps} onChange={(event) => setSteps(event.target.value.replace(/\D/g, ""))} />
        </div>
      </div>
    </Dialog>
  );
}

interface ForkDialogProps {
  onClose: () => void;
  point: { checkpoint?: number; entryId?: string; opId?: string };
  where: string;
  /** The state of the checkpoint, where it may be edited. */
  state?: unknown;
  /** Calls behind the point whose effects would happen again. */
  repeats?: readonly string[];
}

export function ForkDialog({ onClose, point, where, state, repeats = [] }: ForkDialogProps) {
  const { run } = useShown();
  const navigate = useNavigate();
  const action = useAction();
  const [id, setId] = useState("");
  const [isEdited, setEdited] = useState(false);
  const [text, setText] = useState(() => (state === undefined ? "" : JSON.stringify(state, null, 2)));
  const [error, setError] = useState<string | null>(null);
  const go = () => {
    let changed: { state?: unknown } = {};
    if (isEdited) {
      try {
        changed = { state: JSON.parse(text) as unknown };
      } catch (found) {
        setError(`This is no JSON: ${found instanceof Error ? found.message : ""}`);
        return;
      }
    }
    void action.run(async () => {
      const made = await fork(run.id, { ...point, ...changed, ...(id.trim() && { id: id.trim() }) });
      say("It was forked.");
      await navigate({ to: "/runs/$id", params: { id: made.id }, search: {} });
      onClose();
    });
  };
  return (
    <Dialog
      title={`Fork ${where}`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Back</Button>
          <Button tone="primary" busy={action.busy} onClick={go} icon={<GitFork size={13} />}>
            Fork
          </Button>
        </>
      }
    >
      <div className="flex flex-col gap-3 text-sm">
        <p className="text-soft">A new run shares the history up to that point and goes its own way. Results up to there are reused; what follows is done anew.</p>
        {repeats.length > 0 && (
          <div className="rounded-md border border-amber/40 bg-amber-ground p-3">
            <p className="font-medium">Done after this point, and perhaps done again:</p>
            <ul className="mt-1 max-h-40 list-disc overflow-y-auto pl-5">
              {repeats.map((each, index) => (
                <li key={index} className="font-mono text-xs [overflow-wrap:anywhere]">
                  {each}
                </li>
              ))}
            </ul>
          </div>
        )}
        <TextField label="Its id (optional)" value={id} onChange={(event) => setId(event.target.value)} placeholder="a fresh one" />
        {state !== undefined && (
          <>
            <Check label="With another state" checked={isEdited} onChange={(event) => setEdited(event.target.checked)} />
            {isEdited && <TextArea label="State, as JSON" rows={12} value={text} onChange={(event) => setText(event.target.value)} error={error} className="font-mono text-xs" spellCheck={false} />}
          </>
        )}
      </div>
    </Dialog>
  );
}
