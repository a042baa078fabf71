// Predefined agents: listed, made, edited, removed, tried.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Bot, Plus } from "lucide-react";
import { useState } from "react";
import { answer, api, currentOrg } from "../../api/client";
import type { Schemas } from "../../api/client";
import { definitionsQuery } from "../../api/queries";
import { Button, buttonClass } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { formatMoment, formatRelative } from "../../parts/format";
import { PageBody, PageHead } from "../../parts/page";
import { Empty, Failed, Loading } from "../../parts/states";
import { Cell, Table } from "../../parts/table";
import { useAction } from "../../parts/use_action";
import { DefinitionDialog, modelOf } from "./editor";

export function Definitions() {
  const client = useQueryClient();
  const found = useQuery(definitionsQuery);
  const action = useAction();
  const [editing, setEditing] = useState<Schemas["AgentDefinition"] | "new" | null>(null);
  const [removing, setRemoving] = useState<Schemas["AgentDefinition"] | null>(null);
  const refresh = () => client.invalidateQueries({ queryKey: ["definitions"] });
  const remove = async (slug: string) => {
    const done = await action.run(() => answer(api.DELETE("/api/orgs/{org}/agent-definitions/{definition}", { params: { path: { org: currentOrg(), definition: slug } } })), "It is removed; its runs stay.");
    if (!done) return;
    setRemoving(null);
    await refresh();
  };
  return (
    <>
      <PageHead title="Agents">
        <Button tone="primary" icon={<Plus size={14} />} onClick={() => setEditing("new")}>
          New agent
        </Button>
      </PageHead>
      <PageBody>
        {found.isLoadingError ? (
          <Failed error={found.error} onRetry={() => void found.refetch()} />
        ) : !found.data ? (
          <Loading />
        ) : !found.data.items.length ? (
          <Empty title="No predefined agents" icon={<Bot size={26} aria-hidden />}>
            One keeps a prompt, models and tools under a name, so that a run is started with two words.
          </Empty>
        ) : (
          <div className="p-4">
            <Table label="Predefined agents" head={["Agent", "Kind", "Models", "Tools", "Changed", ""]}>
              {found.data.items.map((each) => (
                <tr key={each.id}>
                  <Cell className="max-w-xs">
                    <span className="font-medium">{each.name}</span>
                    <span className="block font-mono text-xs text-faint">{each.slug}</span>
                    {each.description && <span className="block text-xs text-soft">{each.description}</span>}
                  </Cell>
                  <Cell>{each.kind}</Cell>
                  <Cell className="font-mono text-xs">{each.models.map(modelOf).join(", ") || "–"}</Cell>
                  <Cell className="max-w-xs text-xs">{each.tools.map((tool) => (typeof tool === "string" ? tool : "…")).join(", ") || "–"}</Cell>
                  <Cell className="whitespace-nowrap">
                    <time title={formatMoment(each.updatedAt)}>{formatRelative(each.updatedAt)}</time>
                  </Cell>
                  <Cell className="text-right whitespace-nowrap">
                    <span className="inline-flex gap-1.5">
                      <Link to="/runs/new" search={{ definition: each.slug }} className={buttonClass("plain", true)}>
                        Try
                      </Link>
                      <Link to="/runs" search={{ definition: each.slug }} className={buttonClass("plain", true)}>
                        Runs
                      </Link>
                      <Button small onClick={() => setEditing(each)}>
                        Edit
                      </Button>
                      <Button small tone="danger" onClick={() => setRemoving(each)}>
                        Remove
                      </Button>
                    </span>
                  </Cell>
                </tr>
              ))}
            </Table>
          </div>
        )}
      </PageBody>
      {editing && <DefinitionDialog definition={editing === "new" ? null : editing} onClose={() => setEditing(null)} onDone={() => void refresh()} />}
      {removing && (
        <Dialog
          title={`Remove ${removing.name}?`}
          onClose={() => setRemoving(null)}
          footer={
            <>
              <Button onClick={() => setRemoving(null)}>Keep it</Button>
              <Button tone="danger" busy={action.busy} onClick={() => void remove(removing.slug)}>
                Remove
              </Button>
            </>
          }
        >
          <p className="text-sm">Runs keep what they started with.</p>
        </Dialog>
      )}
    </>
  );
}
