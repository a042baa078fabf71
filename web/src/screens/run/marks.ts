// What has happened to a run itself, as marks on its timeline: a worker lost, another one that goes on, pauses, handoffs.
import { asText } from "@flovyn/react/transcript";

/** A durable event, as the API lists it. */
export interface RunEvent {
  readonly id: number;
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface Mark {
  readonly key: number;
  readonly at: number;
  readonly label: string;
  readonly tone: "bad" | "turn" | "good";
}

/** The events that a timeline asks for. */
export const MARKED = ["agent.resumed", "agent.lease_lost", "agent.paused", "agent.continued", "agent.no_worker", "agent.forked", "agent.handed_off", "agent.warning"].join(",");

/** Makes marks of events in their order. That a worker goes on with what it held before is no mark: runs do it after each wait. */
export function marksOf(events: readonly RunEvent[]): readonly Mark[] {
  const marks: Mark[] = [];
  let worker: string | null = null;
  let isLost = false;
  for (const { id, event, data } of events) {
    const at = Date.parse(asText(data["at"]) ?? "");
    if (Number.isNaN(at)) continue;
    const mark = (tone: Mark["tone"], label: string) => marks.push({ key: id, at, tone, label });
    const reason = asText(data["message"]) ?? asText(data["reason"]);
    switch (event) {
      case "agent.resumed": {
        const next = asText(data["workerId"]);
        if (isLost) mark("good", "Recovered: a worker goes on from the last checkpoint, and what was recorded since is replayed");
        else if (worker !== null && next !== null && next !== worker) mark("turn", "Goes on in another worker");
        worker = next ?? worker;
        isLost = false;
        break;
      }
      case "agent.lease_lost":
        mark("bad", "The worker was lost");
        isLost = true;
        break;
      case "agent.paused":
        mark("bad", reason ? `Paused: ${reason}` : "Paused");
        break;
      case "agent.continued":
        mark("good", "Resumed by somebody");
        break;
      case "agent.no_worker":
        mark("bad", "No worker serves it");
        break;
      case "agent.forked":
        mark("turn", "Forked");
        break;
      case "agent.handed_off":
        mark("turn", "Handed its work to another run");
        break;
      case "agent.warning":
        mark("bad", reason ? `Warning: ${reason}` : "Warning");
        break;
    }
  }
  return marks;
}
