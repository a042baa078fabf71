// The server's part of the console as its contract says it, for servers that do not have it yet: pages under the strict
// policy, sessions by cookie, and everything else passed on. Tests speak to it where the server itself serves no console.
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer, request as httpRequest } from "node:http";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";

export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; connect-src 'self'; img-src 'self' data: blob:; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const TYPES: Readonly<Record<string, string>> = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

export interface Gateway {
  readonly url: string;
  /** A code that signs in once. */
  code(): string;
  close(): void;
}

export async function openGateway(root: string, server: string, token: () => string, port = 0): Promise<Gateway> {
  const codes = new Set<string>();
  const sessions = new Set<string>();

  const json = (response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) => {
    response.writeHead(status, { "Content-Type": status < 400 ? "application/json" : "application/problem+json", ...headers });
    response.end(body === null ? undefined : JSON.stringify(body));
  };
  const cookieOf = (request: IncomingMessage) => /flovyn_session=([\w-]+)/.exec(request.headers.cookie ?? "")?.[1] ?? "";
  const unknown = { type: "urn:flovyn:error:Unauthenticated", title: "Nobody is signed in.", status: 401, code: "Unauthenticated", detail: "Sign in." };
  const told = { org: "default", name: "key test", scopes: "exec:read exec:write keys worker audit:read", expiresAt: null };

  async function session(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method === "POST") {
      let body = "";
      for await (const piece of request) body += String(piece);
      const said = JSON.parse(body) as { code?: string; token?: string };
      if (!(said.code && codes.delete(said.code)) && said.token !== token()) return json(response, 401, unknown);
      const id = randomUUID();
      sessions.add(id);
      return json(response, 200, told, { "Set-Cookie": `flovyn_session=${id}; HttpOnly; SameSite=Strict; Path=/` });
    }
    if (request.method === "DELETE") {
      sessions.delete(cookieOf(request));
      return json(response, 204, null, { "Set-Cookie": "flovyn_session=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0" });
    }
    return sessions.has(cookieOf(request)) ? json(response, 200, told) : json(response, 401, unknown);
  }

  function passOn(request: IncomingMessage, response: ServerResponse): void {
    const to = new URL(request.url ?? "/", server);
    const headers: Record<string, string | string[] | undefined> = { ...request.headers, host: to.host, authorization: `Bearer ${token()}` };
    delete headers["cookie"];
    delete headers["origin"];
    const passed = httpRequest(to, { method: request.method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
      answer.on("error", () => response.destroy());
    });
    passed.on("error", () => (response.headersSent ? response.destroy() : json(response, 502, null)));
    response.on("close", () => passed.destroy());
    request.pipe(passed);
  }

  async function page(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = normalize(new URL(request.url ?? "/", "http://page").pathname);
    const isFile = TYPES[extname(path)] !== undefined;
    const bytes = await readFile(join(root, isFile ? path : "index.html")).catch(() => null);
    response.writeHead(bytes ? 200 : 404, {
      "Content-Type": TYPES[isFile ? extname(path) : ".html"] ?? "text/plain",
      "Content-Security-Policy": POLICY,
      "X-Content-Type-Options": "nosniff",
    });
    response.end(bytes);
  }

  const listener: Server = createServer((request, response) => {
    const path = request.url ?? "/";
    if (path === "/api/session") void session(request, response);
    else if (!path.startsWith("/api/")) void page(request, response);
    else if (sessions.has(cookieOf(request))) passOn(request, response);
    else json(response, 401, unknown);
  });
  await new Promise<void>((resolve) => listener.listen(port, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    code() {
      const code = randomUUID();
      codes.add(code);
      return code;
    },
    close() {
      listener.closeAllConnections();
      listener.close();
    },
  };
}
