// Starting a run: an agent and what it is told, or a predefined agent; the same as curl, Python and TypeScript.
import { asObject, asText } from "@flovyn/react/transcript";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Play } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import type { FormEvent } from "react";
import { answer, api, currentOrg } from "../../api/client";
import { definitionsQuery, machinesQuery, modelsQuery, queuesQuery, runQuery, toolsQuery } from "../../api/queries";
import { Button } from "../../parts/button";
import { classNames } from "../../parts/class_names";
import { CopyButton } from "../../parts/copy";
import { SelectField, TextArea, TextField } from "../../parts/field";
import { PageBody, PageHead } from "../../parts/page";
import { useAction } from "../../parts/use_action";
import { ModelPicker } from "./model_picker";
import { ToolPicker } from "./tool_picker";
import { asCurl, asPython, asTypeScript, bodyOf, emptyDraft } from "./draft";
import type { Draft } from "./draft";

const digits = (text: string) => text.replace(/\D/g, "");

export function NewRun() {
  const search = useSearch({ from: "/frame/runs/new" });
  const navigate = useNavigate();
  const action = useAction();
  const [draft, setDraft] = useState<Draft>({ ...emptyDraft, definition: search.definition ?? "" });
  const [error, setError] = useState<string | null>(null);
  const definitions = useQuery(definitionsQuery);
  const queues = useQuery({ ...queuesQuery, refetchInterval: false });
  const models = useQuery(modelsQuery);
  const tools = useQuery(toolsQuery);
  const machines = useQuery({ ...machinesQuery, refetchInterval: false });
  const like = useQuery({ ...runQuery(search.from ?? ""), enabled: search.from !== undefined, refetchInterval: false });
  const set = (change: Partial<Draft>) => setDraft((before) => ({ ...before, ...change }));

  useEffect(() => {
    const run = like.data;
    if (run) setDraft((before) => ({ ...before, ...likeRun(run.kind, run.input, run.queue) }));
  }, [like.data]);

  const kinds = [...new Set(["react-agent", ...(queues.data?.items ?? []).map((each) => each.kind).filter((each) => !each.startsWith("tool.") && each !== "llm.generate")])];
  const { body, problem } = useMemo(() => {
    try {
      return { body: bodyOf(draft), problem: null };
    } catch (found) {
      return { body: null, problem: found instanceof Error ? found.message : String(found) };
    }
  }, [draft]);

  const start = (event: FormEvent) => {
    event.preventDefault();
    if (!body) {
      setError(`The input is no JSON: ${problem}`);
      return;
    }
    setError(null);
    void action.run(async () => {
      const run = await answer(api.POST("/api/orgs/{org}/agent-executions", { params: { path: { org: currentOrg() }, header: { "Idempotency-Key": crypto.randomUUID() } }, body: body as never }));
      await navigate({ to: "/runs/$id", params: { id: run.id }, search: {} });
    });
  };

  return (
    <form onSubmit={start} className="flex min-h-0 flex-1 flex-col">
      <PageHead title="New run">
        <Button type="submit" tone="primary" busy={action.busy} disabled={!draft.definition && !draft.kind.trim()} icon={<Play size={13} />}>
          Start
        </Button>
      </PageHead>
      <PageBody>
        <div className="mx-auto grid max-w-6xl gap-6 p-4 lg:grid-cols-[minmax(0,1fr)_24rem]">
          <div className="flex min-w-0 flex-col gap-4">
            <div className="grid gap-3 sm:grid-cols-2">
              <SelectField label="Predefined agent" value={draft.definition} onChange={(event) => set({ definition: event.target.value })} hint={draft.definition ? "It says which kind, models and tools." : undefined}>
                <option value="">none: say it all here</option>
                {definitions.data?.items.map((each) => (
                  <option key={each.id} value={each.slug}>
                    {each.name}
                  </option>
                ))}
              </SelectField>
              {!draft.definition && (
                <div>
                  <TextField label="Agent" list="agents" value={draft.kind} onChange={(event) => set({ kind: event.target.value })} />
                  <datalist id="agents">
                    {kinds.map((each) => (
                      <option key={each} value={each} />
                    ))}
                  </datalist>
                </div>
              )}
            </div>
            {!draft.definition && (
              <div role="radiogroup" aria-label="What it is told" className="inline-flex self-start rounded-md border border-line p-0.5 text-sm">
                {(["prompt", "JSON"] as const).map((each) => {
                  const isChosen = draft.isJson === (each === "JSON");
                  return (
                    <button key={each} type="button" role="radio" aria-checked={isChosen} onClick={() => set({ isJson: each === "JSON" })} className={classNames("rounded px-2.5 py-0.5", isChosen ? "bg-accent-ground font-medium text-accent" : "text-soft")}>
                      {each === "JSON" ? "Input as JSON" : "Prompt"}
                    </button>
                  );
                })}
              </div>
            )}
            {draft.isJson && !draft.definition ? (
              <TextArea label="Input, as JSON" rows={12} spellCheck={false} value={draft.input} onChange={(event) => set({ input: event.target.value })} error={error} className="font-mono text-xs" placeholder='{"topic": "otters"}' />
            ) : (
              <TextArea label="Prompt" rows={6} autoFocus value={draft.prompt} onChange={(event) => set({ prompt: event.target.value })} placeholder="Find out why the tests fail." />
            )}
            {!draft.definition && !draft.isJson && (
              <>
                <ModelPicker models={models.data?.items ?? []} chosen={draft.models} onChange={(chosen) => set({ models: chosen })} />
                <details>
                  <summary className="text-sm text-soft">System prompt{draft.systemPrompt && ` (${draft.systemPrompt.length} characters)`}</summary>
                  <div className="mt-2">
                    <TextArea label="How the agent is to behave" rows={8} value={draft.systemPrompt} onChange={(event) => set({ systemPrompt: event.target.value })} />
                  </div>
                </details>
                <ToolPicker tools={tools.data?.items ?? []} chosen={draft.tools} onChange={(chosen) => set({ tools: chosen })} />
              </>
            )}
            <details open={Boolean(draft.thinking || draft.maxTurns || draft.maxTokens || draft.maxCost || draft.queue || draft.id || draft.workingDirectory)}>
              <summary className="text-sm text-soft">Limits and where it runs</summary>
              <div className="mt-3 grid gap-3 sm:grid-cols-3">
                {!draft.isJson && (
                  <>
                    <SelectField label="Thinking" value={draft.thinking} onChange={(event) => set({ thinking: event.target.value })}>
                      <option value="">as the agent has it</option>
                      {["off", "low", "medium", "high"].map((each) => (
                        <option key={each}>{each}</option>
                      ))}
                    </SelectField>
                    <TextField label="Turns at most" inputMode="numeric" value={draft.maxTurns} onChange={(event) => set({ maxTurns: digits(event.target.value) })} />
                  </>
                )}
                <TextField label="Tokens at most" inputMode="numeric" value={draft.maxTokens} onChange={(event) => set({ maxTokens: digits(event.target.value) })} />
                <TextField label="US dollars at most" inputMode="decimal" value={draft.maxCost} onChange={(event) => set({ maxCost: event.target.value.replace(/[^\d.]/g, "") })} />
                <TextField label="Queue" placeholder="default" value={draft.queue} onChange={(event) => set({ queue: event.target.value })} />
                {machines.data && machines.data.items.some((each) => each.live) && (
                  <SelectField label="Machine" value={draft.machine} onChange={(event) => set({ machine: event.target.value })}>
                    <option value="">any worker of the queue</option>
                    {machines.data.items
                      .filter((each) => each.live)
                      .map((each) => (
                        <option key={each.name}>{each.name}</option>
                      ))}
                  </SelectField>
                )}
                <TextField label="Its id" placeholder="a fresh one" value={draft.id} onChange={(event) => set({ id: event.target.value })} />
                {!draft.isJson && !draft.definition && <TextField label="Working directory" placeholder="that of the worker" value={draft.workingDirectory} onChange={(event) => set({ workingDirectory: event.target.value })} />}
              </div>
            </details>
          </div>
          <aside aria-label="The same as a program" className="min-w-0">
            {body ? <Programs body={body} /> : <p className="text-sm text-red">The input is no JSON: {problem}</p>}
          </aside>
        </div>
      </PageBody>
    </form>
  );
}

const forms = { curl: (body: Parameters<typeof asPython>[0]) => asCurl(body, location.origin, currentOrg()), Python: asPython, TypeScript: asTypeScript };

function Programs({ body }: { body: Parameters<typeof asPython>[0] }) {
  const [form, setForm] = useState<keyof typeof forms>("curl");
  const text = forms[form](body);
  return (
    <div className="overflow-hidden rounded-lg border border-line bg-surface lg:sticky lg:top-4">
      <div className="flex items-center gap-1 border-b border-line px-2 py-1">
        {(Object.keys(forms) as (keyof typeof forms)[]).map((each) => (
          <button key={each} type="button" aria-pressed={each === form} onClick={() => setForm(each)} className={classNames("rounded px-2 py-1 text-xs", each === form ? "bg-accent-ground font-medium text-accent" : "text-soft hover:bg-hover")}>
            {each}
          </button>
        ))}
        <span className="ml-auto">
          <CopyButton text={text} label={`Copy as ${form}`} />
        </span>
      </div>
      <pre tabIndex={0} className="max-h-[60vh] overflow-auto p-3 font-mono text-xs leading-5">
        {text}
      </pre>
    </div>
  );
}

/** The draft of a run like another one. */
function likeRun(kind: string, input: unknown, queue: string): Partial<Draft> {
  const said = asObject(input);
  const model = asObject(said?.["model"]) ?? (Array.isArray(said?.["models"]) ? asObject(said["models"][0]) : null);
  const isPlain = said !== null && asText(said["userPrompt"]) !== null;
  const where = queue === "default" ? "" : queue;
  if (!isPlain) return { kind, queue: where, isJson: true, input: input === null || input === undefined ? "" : JSON.stringify(input, null, 2) };
  return {
    kind,
    queue: where,
    prompt: asText(said["userPrompt"]) ?? "",
    systemPrompt: asText(said["systemPrompt"]) ?? "",
    models: model ? [`${asText(model["provider"]) ?? ""}/${asText(model["modelId"]) ?? ""}`] : [],
    tools: Array.isArray(said["tools"]) ? said["tools"].filter((each): each is string => typeof each === "string") : [],
    workingDirectory: asText(said["workingDirectory"]) ?? "",
  };
}
