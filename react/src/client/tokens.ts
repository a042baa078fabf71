// Tokens that end: one is asked for when the last is about to, and all requests of a moment share the answer.

/** A token and its end, as `POST …/browser-tokens` answers with. */
export interface ShortToken {
  readonly token: string;
  /** When it ends (RFC 3339); it is used for ever where this is missing. */
  readonly expiresAt?: string | null;
}

/** A token is not used any more so many milliseconds before its end. */
const MARGIN = 30_000;

/**
 * Makes the `token` of `FlovynOptions` from a function that asks your own back end for a token of one run or of one user.
 *
 * It is asked for the first request, and again before the token ends; in between it is kept, in memory alone. Where it throws, the
 * request throws that, and the next one asks again.
 */
export function shortTokens(ask: () => Promise<ShortToken>): () => Promise<string> {
  let kept: Promise<ShortToken> | null = null;
  let until = 0;
  return async () => {
    if (!kept || Date.now() >= until) {
      until = Number.POSITIVE_INFINITY;
      const asked = ask();
      kept = asked;
      asked.then(
        (answer) => {
          if (kept === asked) until = endOf(answer, Date.now());
        },
        () => {
          if (kept === asked) kept = null;
        },
      );
    }
    return (await kept).token;
  };
}

/** Until when a token is used. One that is shorter than twice the margin is used for half of its time. */
function endOf(answer: ShortToken, now: number): number {
  const end = answer.expiresAt ? Date.parse(answer.expiresAt) : Number.POSITIVE_INFINITY;
  return Number.isNaN(end) ? now : Math.max(end - MARGIN, now + (end - now) / 2);
}
