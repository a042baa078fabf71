// An MCP server on its pipes with one tool, `search`, which reads.

const readline = require("node:readline");

const TOOL = {
  name: "search",
  description: "Searches files.",
  inputSchema: { type: "object", properties: { query: { type: "string" } }, required: ["query"] },
  annotations: { readOnlyHint: true },
};

function answer({ method, params }) {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: params.protocolVersion === "2025-06-18" ? "2025-06-18" : "2025-03-26",
        capabilities: { tools: {} },
        serverInfo: { name: "files", version: "1" },
      };
    case "tools/list":
      return { tools: [TOOL] };
    case "tools/call":
      return { content: [{ type: "text", text: `2 files about ${params.arguments.query}` }] };
    default:
      return undefined;
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  if (request.id === undefined) return;
  const result = answer(request);
  const failed = { error: { code: -32601, message: `${request.method} is not known` } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id: request.id, ...(result === undefined ? failed : { result }) })}\n`);
});
