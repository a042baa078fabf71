// What goes wrong at the server, in the words of application/problem+json.

/** A refusal or a failure of the server; `status` is 0 where there was no answer at all. */
export class Problem extends Error {
  override readonly name = "Problem";
  constructor(
    readonly status: number,
    readonly code: string,
    readonly title: string,
    readonly detail: string,
  ) {
    super(detail || title);
  }

  get isSignedOut(): boolean {
    return this.status === 401;
  }
}

/** The problem of an answer, whatever its body is. */
export function problemOf(status: number, body: unknown): Problem {
  const said = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  const text = (name: string) => (typeof said[name] === "string" ? said[name] : "");
  return new Problem(status, text("code") || `HTTP ${status}`, text("title") || "The server refused this.", text("detail"));
}

/** The problem of a request that had no answer. */
export function unreachable(): Problem {
  return new Problem(0, "Unreachable", "The server does not answer.", "Check that it runs and that this computer reaches it; the page tries again by itself.");
}

/** Makes a `Problem` of whatever was thrown. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof TypeError) return unreachable();
  return new Problem(0, "Unexpected", "Something went wrong in this page.", error instanceof Error ? error.message : String(error));
}
