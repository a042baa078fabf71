// @vitest-environment jsdom
// The questions of servers and agents as a form, against a server of four answers: what is asked, what is missing, what is sent.
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { Chat, createClient } from "../src/index.js";
import type { FlovynClient } from "../src/index.js";

afterEach(cleanup);

const entry = (number: number, role: string, entryType: string, content: unknown) => ({
  ...{ id: `e${number}`, execution: "run", parentId: number > 1 ? `e${number - 1}` : null },
  ...{ op: `0-${number}`, role, entryType, content, createdAt: `2026-01-01T00:00:0${number}Z` },
});

const questions = {
  trip: {
    message: "Where to? <b>now</b>",
    schema: { properties: { town: { type: "string", title: "Town" }, days: { type: "integer", title: "Days" }, class: { enum: ["first", "second"], title: "Class" }, meal: { type: "boolean", title: "Meal" } }, required: ["town", "days"] },
  },
  card: { message: "Pay there.", mode: "url", url: "https://pay.example/1" },
  trap: { message: "Or there.", mode: "url", url: "javascript:alert(1)" },
};

const entries = [
  entry(1, "assistant", "message", { role: "assistant", parts: [{ type: "toolCall", id: "call-1", name: "book", arguments: {} }] }),
  entry(2, "assistant", "input_request", { id: "call-1", name: "book", server: "travel", hash: "hash-1", questions }),
];

/** A server that knows one run, which asks, and the signals that it was sent. */
function asking(): { client: FlovynClient; signals: unknown[] } {
  const signals: unknown[] = [];
  const run = { id: "run", kind: "chat", status: "WAITING", createdAt: "", updatedAt: "", leaf: "e2", segment: 0, waitsFor: ["input"], metadata: {} };
  const client = createClient({
    url: "https://flovyn.example",
    fetch: async (input, init = {}) => {
      const path = String(input).replace("https://flovyn.example/api/orgs/default/agent-executions/run", "");
      if (init.method === "POST") signals.push(JSON.parse(String(init.body)));
      if (path.startsWith("/stream")) return new Response(null, { status: 204 });
      return Response.json(path === "" ? run : path.startsWith("/messages/") ? entries[1] : { items: entries, nextCursor: null });
    },
  });
  return { client, signals };
}

it("asks for what the schemas say, and sends it once it is whole", async () => {
  const { client, signals } = asking();
  const page = render(<Chat run="run" client={client} />);
  const form = await screen.findByRole("form", { name: "An answer is needed" });
  expect(form.textContent).toContain("Where to? <b>now</b>");
  expect([...page.container.querySelectorAll("a")].map((link) => link.getAttribute("href"))).toEqual(["https://pay.example/1"]);
  fireEvent.change(screen.getByRole("textbox", { name: "Town" }), { target: { value: "Aarhus" } });
  fireEvent.submit(form);
  expect(screen.getByRole("alert").textContent).toBe("Days is missing.");
  fireEvent.change(screen.getByRole("textbox", { name: "Days" }), { target: { value: "3" } });
  fireEvent.change(screen.getByRole("combobox", { name: "Class (optional)" }), { target: { value: "second" } });
  fireEvent.click(screen.getByRole("checkbox", { name: "Meal" }));
  fireEvent.submit(form);
  await waitFor(() => expect(signals).toHaveLength(1));
  const accepted = { action: "accept", content: {} };
  const trip = { action: "accept", content: { town: "Aarhus", days: 3, class: "second", meal: true } };
  expect(signals[0]).toEqual({ signalName: "input", signalValue: { id: "call-1", hash: "hash-1", responses: { trip, card: accepted, trap: accepted } } });
  await waitFor(() => expect(screen.getByRole("button", { name: "Answer" })).toHaveProperty("disabled", true));
});

it("declines all of them", async () => {
  const { client, signals } = asking();
  render(<Chat run="run" client={client} />);
  const button = await screen.findByRole("button", { name: "Decline" });
  await act(async () => fireEvent.click(button));
  await waitFor(() => expect(signals).toMatchObject([{ signalValue: { responses: { trip: { action: "decline" }, card: { action: "decline" } } } }]));
});
