// What addresses say behind the question mark, read without trusting it.

export interface RunsSearch {
  readonly status?: string;
  readonly kind?: string;
  readonly queue?: string;
  readonly definition?: string;
  readonly since?: string;
  /** Words that are looked for. */
  readonly q?: string;
  readonly all?: true;
}

export interface ApprovalsSearch {
  /** What was decided is shown, in place of what is open. */
  readonly decided?: true;
}

export function readApprovalsSearch(search: Record<string, unknown>): ApprovalsSearch {
  return search["decided"] === true || search["decided"] === "true" ? { decided: true } : {};
}

export const TABS = ["conversation", "timeline", "files", "tree", "state", "family", "usage"] as const;
export type Tab = (typeof TABS)[number];

export interface RunSearch {
  readonly tab?: Tab;
  /** The entry, task or checkpoint that the inspector shows. */
  readonly inspect?: string;
  /** The run below that is looked at in place, and those above it: ids, the innermost last, with dots between. */
  readonly child?: string;
}

/** A text under a name, if there is one. */
export function readText<K extends string>(search: Record<string, unknown>, name: K): { [key in K]?: string } {
  const value = search[name];
  const text = typeof value === "string" ? value : typeof value === "number" ? String(value) : "";
  return (text ? { [name]: text } : {}) as { [key in K]?: string };
}

export function readRunsSearch(search: Record<string, unknown>): RunsSearch {
  return {
    ...readText(search, "status"),
    ...readText(search, "kind"),
    ...readText(search, "queue"),
    ...readText(search, "definition"),
    ...readText(search, "since"),
    ...readText(search, "q"),
    ...(search["all"] === true || search["all"] === "true" ? { all: true as const } : {}),
  };
}

export function readRunSearch(search: Record<string, unknown>): RunSearch {
  const tab = TABS.find((each) => each === search["tab"]);
  return { ...(tab && tab !== "conversation" ? { tab } : {}), ...readText(search, "inspect"), ...readText(search, "child") };
}
