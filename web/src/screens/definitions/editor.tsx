// The editor of a predefined agent.
import { asObject, asText } from "@flovyn/react/transcript";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { answer, api, currentOrg } from "../../api/client";
import type { Schemas } from "../../api/client";
import { modelsQuery, toolsQuery } from "../../api/queries";
import { Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { TextArea, TextField } from "../../parts/field";
import { useAction } from "../../parts/use_action";
import { ModelPicker } from "../new_run/model_picker";
import { ToolPicker } from "../new_run/tool_picker";

/** The reference of a model, whichever way a definition says it. */
export function modelOf(model: unknown): string {
  if (typeof model === "string") return model;
  const said = asObject(model);
  return said ? `${asText(said["provider"]) ?? "?"}/${asText(said["modelId"]) ?? "?"}` : "?";
}

interface DefinitionDialogProps {
  definition: Schemas["AgentDefinition"] | null;
  onClose: () => void;
  onDone: () => void;
}

export function DefinitionDialog({ definition, onClose, onDone }: DefinitionDialogProps) {
  const action = useAction();
  const models = useQuery(modelsQuery);
  const tools = useQuery(toolsQuery);
  const [slug, setSlug] = useState(definition?.slug ?? "");
  const [name, setName] = useState(definition?.name ?? "");
  const [kind, setKind] = useState(definition?.kind ?? "react-agent");
  const [queue, setQueue] = useState(definition?.queue === "default" ? "" : (definition?.queue ?? ""));
  const [description, setDescription] = useState(definition?.description ?? "");
  const [systemPrompt, setSystemPrompt] = useState(definition?.systemPrompt ?? "");
  const [chosenModels, setModels] = useState<readonly string[]>((definition?.models ?? []).map(modelOf));
  const known = (definition?.tools ?? []) as readonly unknown[];
  const [chosenTools, setTools] = useState<readonly string[]>(known.filter((each): each is string => typeof each === "string"));
  const [config, setConfig] = useState(definition && Object.keys(definition.config).length ? JSON.stringify(definition.config, null, 2) : "");
  const [error, setError] = useState<string | null>(null);

  const save = () => {
    let parsed: Record<string, unknown> = {};
    try {
      parsed = config.trim() ? (JSON.parse(config) as Record<string, unknown>) : {};
    } catch (found) {
      setError(`This is no JSON: ${found instanceof Error ? found.message : ""}`);
      return;
    }
    const body = {
      slug: slug.trim(),
      kind: kind.trim(),
      ...(name.trim() && { name: name.trim() }),
      ...(queue.trim() && { queue: queue.trim() }),
      ...(description.trim() && { description: description.trim() }),
      ...(systemPrompt && { systemPrompt }),
      models: chosenModels.map((reference) => ({ provider: reference.slice(0, reference.indexOf("/")), modelId: reference.slice(reference.indexOf("/") + 1) })),
      // What this editor cannot show of the tools stays as it was.
      tools: [...chosenTools, ...known.filter((each) => typeof each !== "string")],
      config: parsed,
      ...(definition && { metadata: definition.metadata }),
    } as never;
    void action
      .run(
        () =>
          definition
            ? answer(api.PUT("/api/orgs/{org}/agent-definitions/{definition}", { params: { path: { org: currentOrg(), definition: definition.slug } }, body }))
            : answer(api.POST("/api/orgs/{org}/agent-definitions", { params: { path: { org: currentOrg() } }, body })),
        "The agent is saved.",
      )
      .then((done) => {
        if (!done) return;
        onDone();
        onClose();
      });
  };
  return (
    <Dialog
      wide
      title={definition ? `Edit ${definition.name}` : "New agent"}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Back</Button>
          <Button tone="primary" busy={action.busy} disabled={!slug.trim() || !kind.trim()} onClick={save}>
            Save
          </Button>
        </>
      }
    >
      <div className="flex flex-col gap-3">
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField label="Slug" hint="Its name in addresses: a-z, 0-9 and -" value={slug} onChange={(event) => setSlug(event.target.value.toLowerCase().replace(/[^a-z0-9-]/g, "-"))} />
          <TextField label="Name" value={name} onChange={(event) => setName(event.target.value)} />
          <TextField label="Kind" hint="The agent whose code runs it" value={kind} onChange={(event) => setKind(event.target.value)} />
          <TextField label="Queue" placeholder="default" value={queue} onChange={(event) => setQueue(event.target.value)} />
        </div>
        <TextField label="Description" value={description} onChange={(event) => setDescription(event.target.value)} />
        <TextArea label="System prompt" rows={8} value={systemPrompt} onChange={(event) => setSystemPrompt(event.target.value)} />
        <ModelPicker models={models.data?.items ?? []} chosen={chosenModels} onChange={setModels} />
        <ToolPicker tools={tools.data?.items ?? []} chosen={chosenTools} onChange={setTools} />
        <TextArea label="Settings, as JSON" rows={4} spellCheck={false} value={config} onChange={(event) => setConfig(event.target.value)} error={error} className="font-mono text-xs" placeholder='{"maxTurns": 25, "thinking": "medium"}' />
      </div>
    </Dialog>
  );
}
