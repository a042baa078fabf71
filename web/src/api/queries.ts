// What screens ask the server for, each under the key that it is kept by.
import { entryOf, openQuestions, runsThatAsk } from "@flovyn/react/client";
import { conversationOf, emptyTranscript, plainTextOf, withPage } from "@flovyn/react/transcript";
import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, api, currentOrg, flovyn, given } from "./client";
import type { Entry, Run } from "./client";
import { currentSession } from "./session";

const org = () => ({ org: currentOrg() });
const run = (id: string) => ({ params: { path: { ...org(), id } } });
const LIVE_MS = 4_000;
const CALM_MS = 15_000;

export const sessionQuery = queryOptions({ queryKey: ["session"], queryFn: currentSession, staleTime: 60_000, retry: false });

export interface RunFilter {
  readonly status?: readonly string[] | undefined;
  readonly kind?: string | undefined;
  readonly queue?: string | undefined;
  readonly definition?: string | undefined;
  readonly parent?: string | undefined;
  readonly createdFrom?: string | undefined;
  readonly createdUntil?: string | undefined;
  readonly roots?: boolean | undefined;
  /** Words that are somewhere in a run. */
  readonly search?: string | undefined;
}

/** A page of runs, newest first. */
export async function listRuns(filter: RunFilter, cursor: string | null, limit: number, totals?: true) {
  const { status, ...rest } = filter;
  const query = given({ ...rest, totals, status: status?.length ? [status.join(",")] : undefined, cursor: cursor ?? undefined, limit });
  return answer(api.GET("/api/orgs/{org}/agent-executions", { params: { path: org(), query } }));
}

export const runsQuery = (filter: RunFilter) =>
  infiniteQueryOptions({
    queryKey: ["runs", filter],
    // What families come to is counted: once for a page, not with each look at the newest.
    queryFn: ({ pageParam }) => listRuns(filter, pageParam, 100, true),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor ?? null,
    // The page asks for the newest runs by itself, and shows them when the reader wants to see them.
    staleTime: Infinity,
    placeholderData: keepPreviousData,
  });

export const newestRunsQuery = (filter: RunFilter) =>
  queryOptions({ queryKey: ["newest runs", filter], queryFn: () => listRuns(filter, null, 100), refetchInterval: LIVE_MS });

const MOVING: ReadonlySet<string> = new Set(["PENDING", "RUNNING", "WAITING", "CANCELLING"]);

export const runQuery = (id: string) =>
  queryOptions({
    queryKey: ["run", id],
    queryFn: () => answer(api.GET("/api/orgs/{org}/agent-executions/{id}", run(id))),
    refetchInterval: (query) => (query.state.data && !MOVING.has(query.state.data.status) ? CALM_MS : LIVE_MS),
  });

/** What has happened to a run itself; of a very long one the first of it. */
export const eventsQuery = (id: string, names: string, isOpen: boolean) =>
  queryOptions({
    queryKey: ["events", id, names],
    queryFn: () => answer(api.GET("/api/orgs/{org}/agent-executions/{id}/events", { params: { path: { ...org(), id }, query: { event: names, limit: 1_000 } } })),
    refetchInterval: isOpen ? CALM_MS : false,
  });

export const childrenQuery = (id: string) =>
  queryOptions({
    queryKey: ["children", id],
    queryFn: () => answer(api.GET("/api/orgs/{org}/agent-executions/{id}/children", { params: { path: { ...org(), id }, query: { limit: 200 } } })),
  });

export const treeQuery = (id: string) =>
  queryOptions({
    queryKey: ["children", "tree", id],
    queryFn: () => answer(api.GET("/api/orgs/{org}/agent-executions/{id}/tree", { params: { path: { ...org(), id }, query: { limit: 500 } } })),
    refetchInterval: CALM_MS,
  });

/** All tasks of a run, up to a number that a page can draw. */
export const tasksQuery = (id: string, live: boolean) =>
  queryOptions({
    queryKey: ["tasks", id],
    queryFn: async () => {
      const tasks = [];
      let cursor: string | undefined;
      do {
        const query = given({ limit: 1000, cursor });
        const page = await answer(api.GET("/api/orgs/{org}/agent-executions/{id}/tasks", { params: { path: { ...org(), id }, query } }));
        tasks.push(...page.tasks);
        cursor = page.nextCursor ?? undefined;
      } while (cursor && tasks.length < 3000);
      return { tasks, more: cursor !== undefined };
    },
    refetchInterval: live ? LIVE_MS : false,
  });

export const entriesQuery = (id: string) =>
  queryOptions({
    queryKey: ["entries", id],
    queryFn: async () => {
      const items = [];
      let cursor: string | undefined;
      do {
        const query = given({ limit: 1000, cursor });
        const page = await answer(api.GET("/api/orgs/{org}/agent-executions/{id}/entries", { params: { path: { ...org(), id }, query } }));
        items.push(...page.items);
        cursor = page.nextCursor ?? undefined;
      } while (cursor && items.length < 3000);
      return { items, more: cursor !== undefined };
    },
  });

/** An entry never changes, so it is asked for once. */
export const entryQuery = (id: string, entryId: string) =>
  queryOptions({ queryKey: ["entry", id, entryId], queryFn: () => entryOf<Entry>(flovyn, id, entryId), staleTime: Infinity });

/** The text of a value that is told by reference. Its bytes never change. */
export const payloadQuery = (href: string) =>
  queryOptions({
    queryKey: ["payload", href],
    queryFn: async ({ signal }) => {
      const response = await fetch(href, { credentials: "same-origin", signal });
      if (!response.ok) throw new Error(`The value could not be read (${response.status}).`);
      return response.text();
    },
    staleTime: Infinity,
  });

export const checkpointsQuery = (id: string) =>
  queryOptions({
    queryKey: ["checkpoints", id],
    queryFn: () => answer(api.GET("/api/orgs/{org}/agent-executions/{id}/checkpoints", { params: { path: { ...org(), id }, query: { limit: 1000 } } })),
  });

export const checkpointQuery = (id: string, seq: number) =>
  queryOptions({
    queryKey: ["checkpoint", id, seq],
    queryFn: () => answer(api.GET("/api/orgs/{org}/agent-executions/{id}/checkpoints/{seq}", { params: { path: { ...org(), id, seq } } })),
    staleTime: Infinity,
  });

export const runUsageQuery = (id: string) =>
  queryOptions({ queryKey: ["run", id, "usage"], queryFn: () => answer(api.GET("/api/orgs/{org}/agent-executions/{id}/usage", run(id))) });

export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/workers", { params: { path: org() } })),
  refetchInterval: LIVE_MS,
});

export const queuesQuery = queryOptions({
  queryKey: ["queues"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/queues", { params: { path: org() } })),
  refetchInterval: LIVE_MS,
});

export const queueLimitsQuery = queryOptions({
  queryKey: ["queues", "limits"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/queues/limits", { params: { path: org() } })),
});

export const unservedQuery = queryOptions({
  queryKey: ["queues", "unserved"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/queues/unserved", { params: { path: org() } })),
  refetchInterval: LIVE_MS,
});

export const usageQuery = (from: string, until: string, kind?: string) =>
  queryOptions({
    queryKey: ["usage", from, until, kind],
    queryFn: () => answer(api.GET("/api/orgs/{org}/usage", { params: { path: org(), query: given({ from, until, kind }) } })),
  });

export const modelsQuery = queryOptions({
  queryKey: ["models"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/models", { params: { path: org() } })),
  staleTime: 60_000,
});

export const toolsQuery = queryOptions({
  queryKey: ["tools"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/tools", { params: { path: org() } })),
  staleTime: 60_000,
});

export const definitionsQuery = queryOptions({
  queryKey: ["definitions"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/agent-definitions", { params: { path: org() } })),
});

export const schedulesQuery = queryOptions({
  queryKey: ["schedules"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/schedules", { params: { path: org() } })),
  refetchInterval: CALM_MS,
});

export const machinesQuery = queryOptions({
  queryKey: ["machines"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/machines", { params: { path: org() } })),
  refetchInterval: CALM_MS,
});

export const keysQuery = queryOptions({
  queryKey: ["keys"],
  queryFn: () => answer(api.GET("/api/orgs/{org}/api-keys", { params: { path: org() } })),
});

/** What was done, newest first; or what was done by one action. */
export const auditQuery = (action?: string) =>
  infiniteQueryOptions({
    queryKey: ["audit", action],
    queryFn: ({ pageParam }) => answer(api.GET("/api/orgs/{org}/audit", { params: { path: org(), query: given({ limit: 100, action, cursor: pageParam ?? undefined }) } })),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor ?? null,
  });

/** Runs in which a person is asked something, newest first. */
export const waitingQuery = queryOptions({ queryKey: ["waiting"], queryFn: () => runsThatAsk<Run>(flovyn), refetchInterval: LIVE_MS });

/** The questions of a run that nobody has answered. They are read again when the run has gone on. */
export const openQuestionsQuery = (of: Run) => queryOptions({ queryKey: ["questions", of.id, of.leaf, of.updatedAt], queryFn: () => openQuestions(flovyn, of), staleTime: Infinity });

/** What was said in a run, as text; of its first thousand entries. */
export const saidQuery = (id: string) =>
  queryOptions({
    queryKey: ["said", id],
    queryFn: async () => {
      const page = await answer(api.GET("/api/orgs/{org}/agent-executions/{id}/messages", { params: { path: { ...org(), id }, query: { limit: 1000 } } }));
      const transcript = withPage(emptyTranscript, page.items);
      return { text: plainTextOf(conversationOf([...transcript.entries.values()])), isCut: Boolean(page.nextCursor) };
    },
  });
