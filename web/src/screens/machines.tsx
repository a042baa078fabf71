// Machines: computers that were let in by name, what they offer, and how another one is let in.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Laptop, Plus } from "lucide-react";
import { useState } from "react";
import { answer, api, currentOrg } from "../api/client";
import type { Schemas } from "../api/client";
import { machinesQuery } from "../api/queries";
import { Button } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { TextField } from "../parts/field";
import { formatMoment, formatRelative } from "../parts/format";
import { JsonView } from "../parts/json_view";
import { PageBody, PageHead } from "../parts/page";
import { Empty, Failed, Loading } from "../parts/states";
import { Cell, Table } from "../parts/table";
import { useAction } from "../parts/use_action";

export function Machines() {
  const client = useQueryClient();
  const found = useQuery(machinesQuery);
  const action = useAction();
  const [isPairing, setPairing] = useState(false);
  const [revoking, setRevoking] = useState<Schemas["Machine"] | null>(null);
  const refresh = () => client.invalidateQueries({ queryKey: ["machines"] });
  return (
    <>
      <PageHead title="Machines">
        <Button tone="primary" icon={<Plus size={14} />} onClick={() => setPairing(true)}>
          Let one in
        </Button>
      </PageHead>
      <PageBody>
        {found.isLoadingError ? (
          <Failed error={found.error} onRetry={() => void found.refetch()} />
        ) : !found.data ? (
          <Loading />
        ) : !found.data.items.length ? (
          <Empty title="No machine was let in" icon={<Laptop size={26} aria-hidden />}>
            A computer asks with <code className="font-mono text-xs">flovyn daemon</code> and shows a code. Enter it here, and its worker serves the queue of its name.
          </Empty>
        ) : (
          <div className="p-4">
            <Table label="Machines" head={["Machine", "State", "Owner", "Queue", "Offers", "Last seen", ""]}>
              {found.data.items.map((each) => (
                <tr key={each.name}>
                  <Cell className="font-medium">{each.name}</Cell>
                  <Cell>{each.live ? <span className="whitespace-nowrap text-green">● may work</span> : <span className="whitespace-nowrap text-faint">○ {each.revokedAt ? "revoked" : "expired"}</span>}</Cell>
                  <Cell>{each.owner}</Cell>
                  <Cell className="font-mono text-xs">machine/{each.name}</Cell>
                  <Cell className="max-w-sm">
                    <JsonView value={each.offers} open={0} />
                  </Cell>
                  <Cell className="whitespace-nowrap">{each.seenAt ? <time title={formatMoment(each.seenAt)}>{formatRelative(each.seenAt)}</time> : "never"}</Cell>
                  <Cell className="text-right">
                    {!each.revokedAt && (
                      <Button small tone="danger" onClick={() => setRevoking(each)}>
                        Revoke
                      </Button>
                    )}
                  </Cell>
                </tr>
              ))}
            </Table>
          </div>
        )}
      </PageBody>
      {isPairing && <PairDialog onClose={() => setPairing(false)} onDone={refresh} />}
      {revoking && (
        <Dialog
          title={`Revoke ${revoking.name}?`}
          onClose={() => setRevoking(null)}
          footer={
            <>
              <Button onClick={() => setRevoking(null)}>Keep it</Button>
              <Button
                tone="danger"
                busy={action.busy}
                onClick={() =>
                  void action
                    .run(() => answer(api.DELETE("/api/orgs/{org}/machines/{machine}", { params: { path: { org: currentOrg(), machine: revoking.name } } })), "It is revoked.")
                    .then((done) => {
                      if (!done) return;
                      setRevoking(null);
                      void refresh();
                    })
                }
              >
                Revoke
              </Button>
            </>
          }
        >
          <p className="text-sm">Its key stops working at once. Runs for it wait until it is let in again.</p>
        </Dialog>
      )}
    </>
  );
}

function PairDialog({ onClose, onDone }: { onClose: () => void; onDone: () => unknown }) {
  const action = useAction();
  const [code, setCode] = useState("");
  const [name, setName] = useState("");
  const [owner, setOwner] = useState("");
  const [told, setTold] = useState<Schemas["ApprovedMachine"] | null>(null);
  const approve = () =>
    void action.run(async () => {
      const body = { name: name.trim() || null, owner: owner.trim() || null };
      setTold(await answer(api.POST("/api/orgs/{org}/machines/pairings/{code}/approve", { params: { path: { org: currentOrg(), code: code.trim() } }, body })));
      onDone();
    });
  return (
    <Dialog
      title="Let a machine in"
      onClose={onClose}
      footer={
        told ? (
          <Button tone="primary" onClick={onClose}>
            Done
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Back</Button>
            <Button tone="primary" busy={action.busy} disabled={!code.trim()} onClick={approve}>
              Let it in
            </Button>
          </>
        )
      }
    >
      {told ? (
        <p className="text-sm">
          <strong>{told.name}</strong> is let in for {told.owner}. It asked from {told.host}, and collects its key by itself.
        </p>
      ) : (
        <div className="flex flex-col gap-3">
          <p className="text-sm text-soft">Enter a code only if you see it on the computer itself: whoever shows it may then do the work of this server.</p>
          <TextField label="Code" autoFocus autoComplete="off" value={code} onChange={(event) => setCode(event.target.value)} />
          <TextField label="Another name than it asks for (optional)" value={name} onChange={(event) => setName(event.target.value)} />
          <TextField label="Owner (optional)" value={owner} onChange={(event) => setOwner(event.target.value)} />
        </div>
      )}
    </Dialog>
  );
}
