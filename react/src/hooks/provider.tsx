// Which server the hooks below ask, and as whom.
import { createContext, useContext, useEffect, useMemo, useRef } from "react";
import type { ReactNode } from "react";
import { createClient } from "../client/index.js";
import type { FlovynClient, FlovynOptions } from "../client/index.js";

const ClientContext = createContext<FlovynClient | null>(null);

/** Says which server is asked, and as whom. */
export interface FlovynProviderProps extends FlovynOptions {
  /** A client that was made elsewhere; the other options are not read then. */
  readonly client?: FlovynClient;
  readonly children?: ReactNode;
}

/**
 * Gives the hooks and components below it the server that they ask.
 *
 * Functions may be written in place: a new one for `token`, `fetch` or `onUnauthorized` is used from the next request on. Another
 * `url`, `org` or `token` as a string is another client, and what is shown is read anew.
 */
export function FlovynProvider({ client, children, ...options }: FlovynProviderProps): ReactNode {
  const latest = useRef<FlovynOptions>(options);
  useEffect(() => {
    latest.current = options;
  });
  const { url, org, token } = options;
  const orgName = typeof org === "string" ? org : undefined;
  const tokenText = typeof token === "string" ? token : undefined;
  const own = useMemo(
    () =>
      createClient({
        ...(url === undefined ? {} : { url }),
        org: () => orgName ?? (typeof latest.current.org === "function" ? latest.current.org() : "default"),
        token: () => tokenText ?? (typeof latest.current.token === "function" ? latest.current.token() : ""),
        fetch: (input, init) => (latest.current.fetch ?? globalThis.fetch)(input, init),
        onUnauthorized: () => latest.current.onUnauthorized?.(),
      }),
    [url, orgName, tokenText],
  );
  return <ClientContext.Provider value={client ?? own}>{children}</ClientContext.Provider>;
}

let usual: FlovynClient | null = null;

/** Gives the client that hooks use: the one that is passed, else the provider's, else the page's own origin with its cookie. */
export function useFlovynClient(client?: FlovynClient): FlovynClient {
  const provided = useContext(ClientContext);
  return client ?? provided ?? (usual ??= createClient());
}
