// API keys: made, shown once, revoked.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound, Plus } from "lucide-react";
import { useState } from "react";
import { answer, api, currentOrg } from "../api/client";
import type { Schemas } from "../api/client";
import { keysQuery } from "../api/queries";
import { Button } from "../parts/button";
import { CopyButton } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Check, SelectField, TextField } from "../parts/field";
import { formatMoment, formatRelative } from "../parts/format";
import { PageBody, PageHead } from "../parts/page";
import { Empty, Failed, Loading } from "../parts/states";
import { Cell, Table } from "../parts/table";
import { useAction } from "../parts/use_action";

export function Keys() {
  const client = useQueryClient();
  const found = useQuery(keysQuery);
  const action = useAction();
  const [isMaking, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<Schemas["KeyView"] | null>(null);
  const refresh = () => client.invalidateQueries({ queryKey: ["keys"] });
  const revoke = (id: string) =>
    void action.run(() => answer(api.DELETE("/api/orgs/{org}/api-keys/{keyId}", { params: { path: { org: currentOrg(), keyId: id } } })), "The key is revoked.").then((done) => {
      if (!done) return;
      setRevoking(null);
      void refresh();
    });
  return (
    <>
      <PageHead title="API keys">
        <Button tone="primary" icon={<Plus size={14} />} onClick={() => setMaking(true)}>
          New key
        </Button>
      </PageHead>
      <PageBody>
        {found.isLoadingError ? (
          <Failed error={found.error} onRetry={() => void found.refetch()} />
        ) : !found.data ? (
          <Loading />
        ) : !found.data.items.length ? (
          <Empty title="No keys" icon={<KeyRound size={26} aria-hidden />}>
            Programs and people sign in with keys. Make one for each, so that each may be revoked by itself.
          </Empty>
        ) : (
          <div className="p-4">
            <Table label="API keys" head={["Name", "State", "May", "Made", "Ends", ""]}>
              {found.data.items.map((each) => {
                const isOver = each.expiresAt != null && Date.parse(each.expiresAt) < Date.now();
                return (
                  <tr key={each.id}>
                    <Cell className="font-medium">{each.name}</Cell>
                    <Cell>{each.revokedAt ? <span className="whitespace-nowrap text-faint">○ revoked</span> : isOver ? <span className="whitespace-nowrap text-faint">○ expired</span> : <span className="whitespace-nowrap text-green">● works</span>}</Cell>
                    <Cell className="max-w-sm font-mono text-xs">{each.scopes}</Cell>
                    <Cell className="whitespace-nowrap">
                      <time title={formatMoment(each.createdAt)}>{formatRelative(each.createdAt)}</time>
                    </Cell>
                    <Cell className="whitespace-nowrap">{each.expiresAt ? <time title={formatMoment(each.expiresAt)}>{formatRelative(each.expiresAt)}</time> : "never"}</Cell>
                    <Cell className="text-right">
                      {!each.revokedAt && (
                        <Button small tone="danger" onClick={() => setRevoking(each)}>
                          Revoke
                        </Button>
                      )}
                    </Cell>
                  </tr>
                );
              })}
            </Table>
          </div>
        )}
      </PageBody>
      {isMaking && <NewKey onClose={() => setMaking(false)} onDone={refresh} />}
      {revoking && (
        <Dialog
          title={`Revoke ${revoking.name}?`}
          onClose={() => setRevoking(null)}
          footer={
            <>
              <Button onClick={() => setRevoking(null)}>Keep it</Button>
              <Button tone="danger" busy={action.busy} onClick={() => revoke(revoking.id)}>
                Revoke
              </Button>
            </>
          }
        >
          <p className="text-sm">It stops working at once, and open streams with it end. This cannot be undone.</p>
        </Dialog>
      )}
    </>
  );
}

const ROLES = { viewer: "viewer: looks only", member: "member: starts and steers runs", worker: "worker: does the work", "member,worker": "member and worker", admin: "admin: all of it" } as const;

function NewKey({ onClose, onDone }: { onClose: () => void; onDone: () => unknown }) {
  const action = useAction();
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<string>("member");
  const [days, setDays] = useState("90");
  const [isForever, setForever] = useState(false);
  const [made, setMade] = useState<Schemas["CreatedKey"] | null>(null);
  const make = () =>
    void action.run(async () => {
      const body: Schemas["CreateKey"] = { name: name.trim(), scopes, ...(isForever ? { neverExpires: true } : { expiresInDays: Number(days) || 90 }) };
      setMade(await answer(api.POST("/api/orgs/{org}/api-keys", { params: { path: { org: currentOrg() } }, body })));
      onDone();
    });
  return (
    <Dialog
      title={made ? "The new key" : "New key"}
      onClose={onClose}
      footer={
        made ? (
          <Button tone="primary" onClick={onClose}>
            I have it
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Back</Button>
            <Button tone="primary" busy={action.busy} disabled={!name.trim()} onClick={make}>
              Make it
            </Button>
          </>
        )
      }
    >
      {made ? (
        <div className="flex flex-col gap-2 text-sm">
          <p>Copy it now: it is shown this once.</p>
          <div className="flex items-center gap-2 rounded-md border border-line bg-raised p-2">
            <code className="min-w-0 flex-1 font-mono text-xs [overflow-wrap:anywhere]">{made.token}</code>
            <CopyButton text={made.token} label="Copy the key" />
          </div>
        </div>
      ) : (
        <div className="flex flex-col gap-3">
          <TextField label="What people call it" autoFocus value={name} maxLength={200} onChange={(event) => setName(event.target.value)} placeholder="ci" />
          <SelectField label="What it may do" value={scopes} onChange={(event) => setScopes(event.target.value)}>
            {Object.entries(ROLES).map(([value, word]) => (
              <option key={value} value={value}>
                {word}
              </option>
            ))}
          </SelectField>
          <TextField label="Days that it works" inputMode="numeric" disabled={isForever} value={days} onChange={(event) => setDays(event.target.value.replace(/\D/g, ""))} />
          <Check label="Until it is revoked" checked={isForever} onChange={(event) => setForever(event.target.checked)} />
        </div>
      )}
    </Dialog>
  );
}
