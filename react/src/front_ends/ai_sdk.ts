// The boundary for the AI SDK: what `useChat` needs to speak with a server of Flovyn. It needs `ai`, which this package does not bring.
import { DefaultChatTransport } from "ai";
import type { UIMessage } from "ai";
import { createClient, runPath } from "../client/client.js";
import type { FlovynOptions } from "../client/client.js";
import { wholeBranch } from "../client/paging.js";
import type { ListedEntry } from "../transcript/types.js";
import { AiSdkReplay } from "./ai_sdk_replay.js";
import { uiMessagesOf } from "./ui_messages.js";
import { unbroken } from "./unbroken.js";

export { uiMessagesOf } from "./ui_messages.js";

/** Says which server is spoken to, and how. */
export interface TransportOptions extends FlovynOptions {
  /** The predefined agent whose runs the chats are, by its id or slug: the first message of a chat starts its run. Without one the run is there already. */
  readonly definition?: string;
  /** Whether what was written in vain is removed; for `ai` 7 and newer. Without it such parts stay, and `isRetracted` knows them. */
  readonly resets?: boolean;
}

/**
 * Makes the transport of a chat whose id is that of a run: `useChat({ id, transport: flovynTransport({ … }) })`.
 *
 * Only the last message is sent, once, however often the connection is cut. A stream that is cut goes on where it was, without the chat
 * noticing; with `resume: true` a page that is loaded again shows what is under way.
 */
export function flovynTransport<M extends UIMessage = UIMessage>(options: TransportOptions = {}): DefaultChatTransport<M> {
  const client = createClient(options);
  const { definition } = options;
  const more = options.resets ? "resets=true" : "";
  const streamPath = (id: string, after: string | null) => `${runPath(id)}/stream?format=ai-sdk&${more}${after === null ? "" : `&after=${encodeURIComponent(after)}`}`;
  return new DefaultChatTransport<M>({
    api: "flovyn",
    prepareSendMessagesRequest: ({ id, messages, messageId, trigger, body, headers }) => {
      const path = definition === undefined ? runPath(id) : `/agent-definitions/${encodeURIComponent(definition)}`;
      const meant = trigger === "submit-message" && messageId !== undefined ? messages.find((each) => each.id === messageId) : undefined;
      return { api: `${path}/ai-sdk?${more}#${id}`, body: { ...body, id, trigger, message: meant ?? messages.at(-1) }, ...(headers ? { headers } : {}) };
    },
    prepareReconnectToStreamRequest: ({ id, headers }) => ({ api: `${streamPath(id, null)}#${id}`, ...(headers ? { headers } : {}) }),
    fetch: (input, init) => {
      const address = String(input);
      const mark = address.indexOf("#");
      const [path, id] = [address.slice(0, mark), address.slice(mark + 1)];
      const { body: _body, method: _method, ...again } = init ?? {};
      // A message that is sent twice is one. A stream without an id has told nothing yet.
      return unbroken((after) => (after === null ? client.fetch(path, init) : client.fetch(streamPath(id, after), again)), new AiSdkReplay(), init?.signal);
    },
  });
}

/** Reads the conversation of a run, to begin a chat with: `useChat({ id, messages, … })`. One that does not exist yet has none. */
export async function loadMessages(id: string, options: FlovynOptions = {}): Promise<UIMessage[]> {
  const entries: ListedEntry[] = [];
  const client = createClient(options);
  try {
    await wholeBranch(client, id, (items) => void entries.push(...(items as unknown as ListedEntry[])));
  } catch (error) {
    if ((error as { status?: number }).status === 404) return [];
    throw error;
  }
  return uiMessagesOf(entries);
}

/** Whether a part was written in an attempt that has failed, so that it does not count: leave it out. */
export function isRetracted(part: UIMessage["parts"][number]): boolean {
  const metadata = "providerMetadata" in part ? part.providerMetadata : undefined;
  return metadata?.["flovyn"]?.["retracted"] === true;
}
