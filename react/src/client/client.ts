// Requests to one server, for one org: where it is, how the caller is known, problems as exceptions.
import { problemOf, unreachable } from "./problem.js";

/** Says which server is asked, and as whom. */
export interface FlovynOptions {
  /** The origin of the server, or an address that passes requests on to it; the page's own origin without one. */
  readonly url?: string;
  /** The org, or who tells it; `default` without one. */
  readonly org?: string | (() => string);
  /** A key of the server, or who tells it for each request. Without one the browser's cookie of the same origin is sent. */
  readonly token?: string | (() => string | Promise<string>);
  /** Sends requests in place of the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** Is called when the server does not know the caller any more (401). */
  readonly onUnauthorized?: () => void;
}

/** Asks one server. Paths are those of an org: `/agent-executions` is `/api/orgs/{org}/agent-executions`. */
export interface FlovynClient {
  /** Sends a request and answers with the response, whatever its status is. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  /** Answers with the JSON of a resource, or throws a `Problem`. */
  get<T>(path: string, query?: Readonly<Record<string, string | number | null | undefined>>): Promise<T>;
  /** Sends a JSON body and answers with the JSON of the answer, or throws a `Problem`. */
  post<T>(path: string, body: object): Promise<T>;
  /** Answers with the text of a value that was told by reference. */
  text(href: string): Promise<string>;
}

/** Makes a client. One client for a page is enough: runs and questions are shared by those who use the same one. */
export function createClient(options: FlovynOptions = {}): FlovynClient {
  const url = (options.url ?? "").replace(/\/+$/, "");
  const org = () => (typeof options.org === "function" ? options.org() : (options.org ?? "default"));

  async function send(path: string, init: RequestInit): Promise<Response> {
    const headers = new Headers(init.headers);
    const token = typeof options.token === "function" ? await options.token() : options.token;
    if (token) headers.set("Authorization", `Bearer ${token}`);
    // A caller who is known by a token needs no cookie, and a server of another origin is sent none.
    const credentials = token ? "omit" : "same-origin";
    const response = await (options.fetch ?? globalThis.fetch)(url + path, { ...init, headers, credentials });
    if (response.status === 401) options.onUnauthorized?.();
    return response;
  }

  async function answered(path: string, init: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await send(path, init);
    } catch (error) {
      if (error instanceof TypeError) throw unreachable();
      throw error;
    }
    if (response.ok) return response;
    throw problemOf(response.status, await response.json().catch(() => null));
  }

  const place = (path: string) => `/api/orgs/${encodeURIComponent(org())}${path}`;
  const json = async <T>(response: Response): Promise<T> => (response.status === 204 ? null : await response.json()) as T;
  return {
    fetch: (path, init = {}) => send(place(path), init),
    get: async (path, query = {}) => json(await answered(place(path) + queryOf(query), {})),
    post: async (path, body) => json(await answered(place(path), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })),
    async text(href) {
      // A token is for its server alone.
      if (!href.startsWith("/api/")) throw new TypeError(`${href} is no address of the server.`);
      return (await answered(href, {})).text();
    },
  };
}

/** The path of a run below that of its org. */
export function runPath(id: string): string {
  return `/agent-executions/${encodeURIComponent(id)}`;
}

function queryOf(values: Readonly<Record<string, string | number | null | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined) query.set(name, String(value));
  }
  const text = query.toString();
  return text && `?${text}`;
}
