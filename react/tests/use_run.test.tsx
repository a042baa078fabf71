// @vitest-environment jsdom
// `useRun` and `useApprovals` against a server and a worker that are killed: nothing is lost, nothing is doubled.
import { act, cleanup, render, renderHook, waitFor } from "@testing-library/react";
import { StrictMode } from "react";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { FlovynProvider, plainTextOf, useApprovals, useRun } from "../src/index.js";
import type { UseRun } from "../src/index.js";
import { Processes, clientOf, until } from "./world.js";

const STORY = "A long story about otters, please.";
let world: Processes;
beforeAll(async () => {
  world = await Processes.open();
});
afterAll(() => world?.close());
afterEach(cleanup);

const seconds = { timeout: 90_000, interval: 25 };

/** The agent's words of a run, as the API tells them when it has ended. */
async function saidIn(id: string): Promise<string> {
  const { items } = await world.ask<{ items: { role: string; content: { parts?: { type: string; text?: string }[] } }[] }>("GET", `/agent-executions/${id}/messages?limit=1000`);
  return items.filter((item) => item.role === "assistant").flatMap((item) => (item.content.parts ?? []).flatMap((part) => (part.type === "text" ? [part.text ?? ""] : []))).join("");
}

const wordsOf = (run: UseRun) => run.blocks.flatMap((block) => (block.kind === "message" && block.role === "assistant" ? [block.text] : [])).join("");

describe("useRun", () => {
  it("shows text while it is written, and the same once when it is done; components share one stream, which ends with the last", async () => {
    await world.start("story-1", STORY);
    const { client, streams } = clientOf(world);
    const seen: string[] = [];
    function Reader({ isFirst }: { isFirst: boolean }) {
      const run = useRun("story-1");
      if (isFirst && run.text) seen.push(run.text);
      return <p data-testid={isFirst ? "first" : "second"}>{`${run.status} ${run.isConnected} ${wordsOf(run)}`}</p>;
    }
    const shown = (both: boolean) => (
      <StrictMode>
        <FlovynProvider client={client}>
          <Reader isFirst />
          {both && <Reader isFirst={false} />}
        </FlovynProvider>
      </StrictMode>
    );
    const page = render(shown(true));
    await waitFor(() => expect(new Set(seen).size).toBeGreaterThan(5), seconds);
    expect(streams).toEqual({ opened: 1, open: 1 });
    page.rerender(shown(false));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(streams).toEqual({ opened: 1, open: 1 });
    page.unmount();
    await until("the stream ends", () => streams.open === 0, 10_000);
    // What was written grew, and was never written anew.
    const texts = seen.filter((text, index) => text !== seen[index - 1]);
    for (const [index, text] of texts.slice(1).entries()) expect(text.startsWith(texts[index] ?? "")).toBe(true);

    // Coming back shows what there is, and goes on behind it.
    const again = render(shown(false));
    await waitFor(() => expect(again.getByTestId("first").textContent).toMatch(/^COMPLETED/), seconds);
    expect(again.getByTestId("first").textContent).toBe(`COMPLETED true ${await saidIn("story-1")}`);
  });

  it("loses and doubles nothing when the server is killed while it streams, and started again", async () => {
    await world.start("clean-1", STORY);
    await world.status("clean-1", "COMPLETED");
    await world.start("killed-1", STORY);
    const { client, streams } = clientOf(world);
    const { result } = renderHook(() => useRun("killed-1", { client }));
    await waitFor(() => expect(result.current.text).toContain("crayfish"), seconds);
    await world.killServer();
    await waitFor(() => expect(result.current.connection).toBe("reconnecting"), seconds);
    expect(result.current.isConnected).toBe(false);
    await world.startServer();
    await waitFor(() => expect(result.current.status).toBe("COMPLETED"), seconds);
    expect(wordsOf(result.current)).toBe(await saidIn("clean-1"));
    expect(result.current.blocks.filter((block) => block.kind === "message").map((block) => block.kind === "message" && block.role)).toEqual(["system", "user", "assistant"]);
    expect(result.current).toMatchObject({ text: "", previews: [], error: null, isConnected: true });
    expect(streams.opened).toBeGreaterThan(1);

    // A page that is loaded anew reads the same.
    const another = clientOf(world).client;
    const fresh = renderHook(() => useRun("killed-1", { client: another }));
    await waitFor(() => expect(fresh.result.current.blocks.length).toBe(result.current.blocks.length), seconds);
    expect(plainTextOf(fresh.result.current.blocks)).toBe(plainTextOf(result.current.blocks));
  });

  it("sends a message once although the server is away, and knows when it is heard", async () => {
    await world.start("chat-1", "Hello.", { config: { mode: "chat" } });
    await world.status("chat-1", "WAITING");
    const { client } = clientOf(world);
    const { result } = renderHook(() => useRun("chat-1", { client }));
    await waitFor(() => expect(result.current.status).toBe("WAITING"), seconds);
    await world.killServer();
    let sent: Promise<void> = Promise.resolve();
    act(() => {
      sent = result.current.send("Give me the survey.");
    });
    expect(result.current.pending).toMatchObject([{ text: "Give me the survey.", isSent: false }]);
    await world.startServer();
    await act(() => sent);
    await waitFor(() => expect(wordsOf(result.current)).toContain("What otters eat"), seconds);
    expect(result.current.pending).toEqual([]);
    expect(result.current.blocks.filter((block) => block.kind === "message" && block.text === "Give me the survey.")).toHaveLength(1);
    await act(() => result.current.stop());
    await waitFor(() => expect(result.current.status).toBe("CANCELLED"), seconds);
  });

  it("decides a call, and refuses a second decision and one that nobody asks for", async () => {
    await world.start("publish-1", "Please publish otters.");
    const { client } = clientOf(world);
    const { result } = renderHook(() => useRun("publish-1", { client }));
    await waitFor(() => expect(result.current.questions).toHaveLength(1), seconds);
    const call = result.current.questions[0]?.block.call.id ?? "";
    await expect(result.current.approve("nothing")).rejects.toThrow("No call nothing waits");
    await world.killWorker();
    const terms = { arguments: { title: "Beavers", words: 3 }, scope: "run" } as const;
    await act(() => result.current.approve(call, terms));
    await expect(result.current.deny(call, "No.")).rejects.toMatchObject({ status: 409 });
    await world.startWorker();
    await waitFor(() => expect(result.current.status).toBe("COMPLETED"), seconds);
    const block = result.current.blocks.find((each) => each.kind === "call");
    expect(block).toMatchObject({ approval: { decision: { approved: true, ...terms } }, result: { text: expect.stringContaining("Beavers is published with 3 words.") } });
  });

  it("shows the newest of a long run first, and all of it when older entries are loaded", async () => {
    await world.ask("POST", "/agent-executions", { kind: "many", id: "many-1", input: 300 });
    await world.status("many-1", "COMPLETED");
    const { client } = clientOf(world);
    const { result } = renderHook(() => useRun("many-1", { client }));
    await waitFor(() => expect(result.current.blocks.length).toBeGreaterThan(0), seconds);
    expect(result.current.hasOlder).toBe(true);
    expect(result.current.blocks.length).toBeLessThan(100);
    while (result.current.hasOlder) await act(() => result.current.loadOlder());
    expect(result.current.blocks.map((block) => block.kind === "message" && block.text.split(".")[0])).toEqual(Array.from({ length: 300 }, (_, place) => `Message ${place + 1} of 300`));
  });

  it("reads a value that is too large to be listed when it is asked to", async () => {
    await world.ask("POST", "/agent-executions", { kind: "big", id: "big-1", input: 600_000 });
    await world.status("big-1", "COMPLETED");
    const { client } = clientOf(world);
    const { result } = renderHook(() => useRun("big-1", { client }));
    await waitFor(() => expect(result.current.blocks.map((block) => block.kind)).toEqual(["message", "deferred"]), seconds);
    const { entry } = result.current.blocks[1] ?? {};
    await act(() => result.current.loadEntry(entry?.run ?? "", entry?.id ?? ""));
    expect(result.current.blocks[1]).toMatchObject({ kind: "message", text: "otter\n".repeat(100_000) });
  });

  it("says why a run cannot be read", async () => {
    const { client } = clientOf(world);
    const { result } = renderHook(() => useRun("nowhere", { client }));
    await waitFor(() => expect(result.current.error).toMatchObject({ status: 404 }), seconds);
    expect(result.current).toMatchObject({ run: null, blocks: [], isLoading: false });
  });
});

describe("useApprovals", () => {
  it("has the questions of all runs, and takes decisions", async () => {
    await world.start("publish-2", "Please publish beavers.");
    await world.start("publish-3", "Please publish voles.");
    const { client } = clientOf(world);
    const { result } = renderHook(() => useApprovals({ client }), { wrapper: StrictMode });
    await waitFor(() => expect(result.current.approvals.map((each) => each.run.key).sort()).toEqual(["publish-2", "publish-3"]), seconds);
    const of = (key: string) => result.current.approvals.find((each) => each.run.key === key);
    const [second, third] = [of("publish-2"), of("publish-3")];
    if (!second || !third) throw new Error("Both are there.");
    expect(second.block.approval).toMatchObject({ name: "publish", arguments: { title: "Otters", words: 120 } });
    await act(() => result.current.approve(second));
    expect(of("publish-2")).toBeUndefined();
    await act(() => result.current.deny(third, "Not yet."));
    expect(result.current.approvals).toEqual([]);
    await Promise.all(["publish-2", "publish-3"].map((id) => world.status(id, "COMPLETED")));
    await act(() => result.current.refresh());
    expect(result.current).toMatchObject({ approvals: [], error: null, isLoading: false });
  });
});
