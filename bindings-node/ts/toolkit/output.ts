// Structured output: the form of an answer, from a schema, and the step of a model call that asks again until it fits.

import { InvalidArgument, messageOf, TaskFailed } from "../errors.js";
import { Results } from "../results.js";
import { type StandardSchema, storedAtOnce } from "../schema.js";
import { Step } from "../step.js";
import type { Own } from "../serializer.js";
import type { Reply } from "./llm.js";
import { jsonSchemaOf, type JsonSchema } from "./schema.js";

/** The form of an answer: zod, any other schema that has a JSON form, or a JSON Schema itself. */
export type OutputSchema = StandardSchema | JsonSchema;

/** The values of a form. */
export type OutputOf<O> = O extends StandardSchema<unknown, infer T> ? T : O extends undefined ? undefined : unknown;

/** The tool by which models answer that cannot be forced into a form. */
export const FINAL_ANSWER = "final_answer";

/** How often a model is asked again where its answer does not have the form. */
export const RETRIES = 2;

/** The form as the toolkit reads it. */
export function formOf(output: OutputSchema | undefined, retries = RETRIES): object | undefined {
  if (output === undefined) return undefined;
  if (!Number.isInteger(retries) || retries < 0) {
    throw new InvalidArgument(`outputRetries is ${retries}; give a whole number, 0 or more`);
  }
  return { schema: jsonSchemaOf(output, "output"), retries };
}

/** An answer as a value of its form. */
export function valueOf(output: OutputSchema | undefined, found: unknown): unknown {
  if (output === undefined || found === undefined || !("~standard" in output)) return found;
  return storedAtOnce(output as StandardSchema, found, "output");
}

/** No answer of the model had the form that was asked for; the message tells what was wrong with the last one. */
export class InvalidOutput extends TaskFailed {
  /** @internal */
  constructor(asked: number, fault: string) {
    super(`the model was asked ${asked} times and gave no answer of the form: ${fault}`, { type: "invalid_output" });
  }
}

/** Reads the outcomes of an agent whose answer has a form. */
export class OutcomesOf extends Results {
  constructor(
    own: Own,
    private readonly output: OutputSchema | undefined,
    of: string,
  ) {
    super(own, undefined, of);
  }

  override get arePlain(): boolean {
    return this.output === undefined && super.arePlain;
  }

  override read(stored: unknown): unknown {
    const outcome = super.read(stored) as { output?: unknown };
    return outcome.output === undefined ? outcome : { ...outcome, output: valueOf(this.output, outcome.output) };
  }
}

/** A step that asks again while the answer does not fit: each time is an op of its own, recorded and paid once. */
export class Asking<O> extends Step<Reply<O>> {
  private chain: Promise<Reply<O>> | undefined;

  /** @internal */
  constructor(
    private readonly first: Step<Reply<O>>,
    private readonly retries: number,
    private readonly again: (reply: Reply<O>) => Step<Reply<O>>,
  ) {
    super(undefined, first.op, first.id);
  }

  override get ref(): string {
    return this.first.ref;
  }

  override then<A = Reply<O>, B = never>(
    fulfilled?: ((value: Reply<O>) => A | PromiseLike<A>) | null,
    // eslint-disable-next-line @typescript-eslint/no-explicit-any
    rejected?: ((reason: any) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.chain ??= untilItFits(this.first, this.retries, this.again);
    return this.chain.then(fulfilled, rejected);
  }

  override finally(ended?: (() => void) | null): Promise<Reply<O>> {
    return this.then().finally(ended);
  }

  /** @internal */
  override isLeft(): boolean {
    return this.first.isLeft();
  }

  /** @internal */
  override get isAwaited(): boolean {
    return this.first.isAwaited;
  }

  /** @internal */
  override get failure(): unknown {
    return this.first.failure;
  }

  /** @internal */
  override giveUp(): boolean {
    return this.first.giveUp();
  }
}

/** The first answer that fits. */
export async function untilItFits<O>(
  first: PromiseLike<Reply<O>>,
  retries: number,
  again: (reply: Reply<O>) => PromiseLike<Reply<O>>,
): Promise<Reply<O>> {
  let reply = await first;
  for (let asked = 1; reply.fault !== undefined; asked += 1) {
    if (asked > retries) throw new InvalidOutput(asked, reply.fault);
    reply = await again(reply);
  }
  return reply;
}

/** What the schema's own rules find wrong, which its JSON form does not tell. */
export function refusalOf(error: unknown): string {
  return `The answer was refused: ${messageOf(error)}. Answer again, in the form that was asked for.`;
}
