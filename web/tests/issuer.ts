// A real issuer of OpenID Connect on this machine, whose people need no password.
import { createServer } from "node:http";
import type { Server } from "node:http";
import { Provider } from "oidc-provider";

/** The secret by which the server proves to the issuer that it is the one whom browsers are sent to. */
export const CLIENT = { id: "flovyn", secret: "a-secret-of-tests" } as const;

/** Who is of which groups; somebody else is of none. */
const GROUPS: Readonly<Record<string, readonly string[]>> = { ann: ["operators"], bob: ["staff"] };

export class Issuer {
  private constructor(
    readonly url: string,
    private readonly server: Server,
  ) {}

  /** Starts one that sends browsers back to a server. */
  static async open(port: number, callback: string): Promise<Issuer> {
    const url = `http://localhost:${port}`;
    const provider = new Provider(url, {
      clients: [{ client_id: CLIENT.id, client_secret: CLIENT.secret, redirect_uris: [callback] }],
      claims: { openid: ["sub"], profile: ["groups"], email: ["email", "email_verified"] },
      cookies: { keys: ["a key of tests"] },
      findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: [...(GROUPS[id] ?? [])], email: `${id}@example.com`, email_verified: true }) }),
    });
    const server = createServer(provider.callback());
    await new Promise<void>((resolve) => server.listen(port, "localhost", resolve));
    return new Issuer(url, server);
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
