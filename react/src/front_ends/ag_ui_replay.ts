// What a reader of AG-UI has of a stream. Read again from its beginning, the turn is told anew: its reader is given the messages
// from before it first, so that nothing stands twice.
import type { Replay } from "./unbroken.js";

interface Message {
  readonly id: string;
  readonly role: string;
}

interface AgUiEvent {
  readonly type: string;
  readonly messages?: readonly Message[];
  readonly messageId?: string;
  readonly stepName?: string;
}

const ENDS: ReadonlySet<string> = new Set(["RUN_FINISHED", "RUN_ERROR"]);
/** What is open, by its first event, and the event that ends it. */
const PAIRS: Readonly<Record<string, string>> = {
  TEXT_MESSAGE_START: "TEXT_MESSAGE_END",
  REASONING_START: "REASONING_END",
  REASONING_MESSAGE_START: "REASONING_MESSAGE_END",
  STEP_STARTED: "STEP_FINISHED",
};
const CLOSES: ReadonlySet<string> = new Set(Object.values(PAIRS));

/** Knows what is open of one stream. */
export class AgUiReplay implements Replay {
  private open: AgUiEvent[] = [];
  private hasStarted = false;
  private isAgain = false;
  private before: readonly Message[] | null;
  private readonly run: { readonly threadId: string; readonly runId: string };

  /** `run` names the turn as its reader does, and `before` are the messages that it had; without them the stream tells them first. */
  constructor(
    run: { readonly threadId: string; readonly runId: string },
    before: readonly Message[] | null,
  ) {
    this.before = before;
    this.run = { threadId: run.threadId, runId: run.runId };
  }

  isEnd(data: string): boolean {
    return ENDS.has((JSON.parse(data) as AgUiEvent).type);
  }

  rewind(): readonly string[] {
    const ends = this.open.reverse().map(({ type, messageId, stepName }) => ({ type: PAIRS[type], ...(messageId === undefined ? { stepName } : { messageId }) }));
    this.open = [];
    this.isAgain = true;
    const before = this.before ? [{ type: "MESSAGES_SNAPSHOT", messages: this.before }] : [];
    return [...ends, ...before].map((event) => JSON.stringify(event));
  }

  pass(data: string): readonly string[] {
    const event = JSON.parse(data) as AgUiEvent;
    if (event.type === "RUN_STARTED" || event.type === "RUN_FINISHED") {
      const isKnown = event.type === "RUN_STARTED" && this.hasStarted;
      this.hasStarted = true;
      return isKnown ? [] : [JSON.stringify({ ...event, ...this.run })];
    }
    if (event.type === "MESSAGES_SNAPSHOT" && event.messages) {
      this.before ??= event.messages;
      return this.isAgain ? [JSON.stringify({ ...event, messages: this.withBefore(event.messages) })] : [data];
    }
    if (event.type in PAIRS) this.open.push(event);
    else if (CLOSES.has(event.type)) {
      const isIt = (each: AgUiEvent) => PAIRS[each.type] === event.type && each.messageId === event.messageId && each.stepName === event.stepName;
      this.open = this.open.filter((each) => !isIt(each));
    }
    return [data];
  }

  /** The messages of a turn behind those that its reader had, who knows messages of the user by other ids. */
  private withBefore(messages: readonly Message[]): readonly Message[] {
    const known = new Set(this.before?.map((message) => message.id));
    const turn = messages.slice(messages.map((message) => message.role).lastIndexOf("user") + 1);
    return [...(this.before ?? []), ...turn.filter((message) => !known.has(message.id))];
  }
}
