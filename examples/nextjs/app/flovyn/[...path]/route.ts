// Passes what the page asks on to the server, with the key that no browser sees. Here a page of yours asks who its user is.
const allowed = /^api\/orgs\/default\/(agent-definitions\/otters\/ai-sdk|agent-executions\/[^/]+\/stream)$/;

async function pass(request: Request, { params }: { params: Promise<{ path: string[] }> }): Promise<Response> {
  const path = (await params).path.map(encodeURIComponent).join("/");
  if (!allowed.test(path)) return new Response("There is nothing here.", { status: 404 });
  const { FLOVYN_URL: server = "http://127.0.0.1:8080", FLOVYN_TOKEN: token } = process.env;
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const body = request.method === "POST" ? await request.text() : null;
  const address = `${server}/${path}${new URL(request.url).search}`;
  const answer = await fetch(address, { method: request.method, headers, body, signal: request.signal }).catch(() => null);
  const type = { "Content-Type": answer?.headers.get("Content-Type") ?? "text/plain", "Cache-Control": "no-cache, no-transform" };
  return new Response(answer?.body ?? null, { status: answer?.status ?? 502, headers: type });
}

export { pass as GET, pass as POST };
