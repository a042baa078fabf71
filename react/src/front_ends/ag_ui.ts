// The boundary for AG-UI: an agent of its client that goes on behind a cut connection. It needs `@ag-ui/client`, which this package does not
// bring.
import { HttpAgent } from "@ag-ui/client";
import type { AgentConfig, HttpAgentFetchFn, RunAgentInput } from "@ag-ui/client";
import { createClient, runPath } from "../client/client.js";
import type { FlovynClient, FlovynOptions } from "../client/client.js";
import { AgUiReplay } from "./ag_ui_replay.js";
import { unbroken } from "./unbroken.js";

/** Says which server and which agent is spoken to. The thread is the run: `threadId` is its id. */
export interface FlovynAgentConfig extends AgentConfig, FlovynOptions {
  /** The predefined agent whose runs the threads are: the first message of a thread starts its run. Without one the run is there already. */
  readonly definition?: string;
}

/**
 * Is an agent of AG-UI whose thread is a run of Flovyn.
 *
 * `runAgent` sends the last message, or the answers to interrupts, and `connectAgent` shows the conversation and what is under way. A
 * connection that is cut is opened again: the run goes on in between, and every message is there once.
 */
export class FlovynAgent extends HttpAgent {
  constructor(private config: FlovynAgentConfig) {
    const { url: _url, fetch: _fetch, org: _org, token: _token, onUnauthorized: _onUnauthorized, definition: _definition, ...agent } = config;
    super({ ...agent, url: "flovyn", fetch: (_path, init) => sent(createClient(config), config.definition, init) });
  }

  protected override connect(input: RunAgentInput): ReturnType<HttpAgent["run"]> {
    const client = createClient(this.config);
    const open = (after: string | null) => client.fetch(streamPath(input.threadId, after), { signal: this.abortController.signal });
    const fetch: HttpAgentFetchFn = () => unbroken(open, new AgUiReplay(input, null), this.abortController.signal);
    return new HttpAgent({ url: "flovyn", threadId: input.threadId, fetch }).run(input);
  }

  override clone(): FlovynAgent {
    const copy = super.clone() as FlovynAgent;
    copy.config = this.config;
    return copy;
  }
}

/** Sends what `runAgent` sends. */
function sent(client: FlovynClient, definition: string | undefined, init: RequestInit): Promise<Response> {
  const input = JSON.parse(String(init.body)) as RunAgentInput;
  const path = definition === undefined ? runPath(input.threadId) : `/agent-definitions/${encodeURIComponent(definition)}`;
  const { body: _body, method: _method, ...again } = init;
  const open = (after: string | null) => (after === null ? client.fetch(`${path}/ag-ui`, init) : client.fetch(streamPath(input.threadId, after), again));
  return unbroken(open, new AgUiReplay(input, input.messages), init.signal);
}

function streamPath(run: string, after: string | null): string {
  return `${runPath(run)}/stream?format=ag-ui${after === null ? "" : `&after=${encodeURIComponent(after)}`}`;
}
