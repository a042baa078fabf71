// @vitest-environment jsdom
// `<Chat>` against a server and a worker: what people see, decide and say, and text that means harm.
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { StrictMode } from "react";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Chat, FlovynProvider } from "../src/index.js";
import type { ChatProps, FlovynClient } from "../src/index.js";
import { Processes, clientOf, until } from "./world.js";

let world: Processes;
beforeAll(async () => {
  world = await Processes.open();
});
afterAll(() => world?.close());
afterEach(cleanup);

const seconds = { timeout: 90_000, interval: 25 };
const log = () => screen.getByRole("log", { name: "Conversation" });
const answers = () => within(log()).queryAllByRole("article", { name: "From the agent" });

function show(props: ChatProps, client: FlovynClient = clientOf(world).client) {
  return render(
    <StrictMode>
      <FlovynProvider client={client}>
        <Chat {...props} />
      </FlovynProvider>
    </StrictMode>,
  );
}

describe("<Chat>", () => {
  it("shows an answer as it is written, and it stands once when the server was killed meanwhile", async () => {
    await world.start("story-1", "A long story about otters, please.");
    const { client, streams } = clientOf(world);
    const drawn: string[] = [];
    const draw = (text: string) => {
      drawn.push(text);
      return text;
    };
    const page = show({ run: "story-1", renderMarkdown: draw }, client);
    await waitFor(() => expect(screen.getByRole("article", { name: "Being written" }).textContent).toContain("crayfish"), seconds);
    await world.killServer();
    await waitFor(() => expect(screen.getByText(/The connection was lost/)).toBeTruthy(), seconds);
    await world.startServer();
    await waitFor(() => expect(page.container.querySelector("[data-status=COMPLETED]")).toBeTruthy(), seconds);
    expect(screen.queryByText(/The connection was lost/)).toBeNull();
    expect(screen.queryByRole("article", { name: "Being written" })).toBeNull();
    expect(answers()).toHaveLength(1);
    const { items } = await world.ask<{ items: { role: string; content: { parts: { text: string }[] } }[] }>("GET", "/agent-executions/story-1/messages");
    const said = items.find((item) => item.role === "assistant")?.content.parts[0]?.text;
    expect(answers()[0]?.textContent).toBe(said);
    // What stands is not drawn again with each word that is written.
    expect(new Set(drawn).size).toBeGreaterThan(50);
    expect(drawn.filter((text) => text === "A long story about otters, please.").length).toBeLessThan(20);
    page.unmount();
    await until("the stream ends", () => streams.open === 0, 10_000);
  });

  it("folds what the model thought, and draws text as it is told to", async () => {
    await world.start("survey-1", "A survey, please.");
    await world.status("survey-1", "COMPLETED");
    show({ run: "survey-1", renderMarkdown: (text) => <em>{text.length}</em>, labels: { thought: "Gedacht" } });
    const thought = await screen.findByText("Gedacht", {}, seconds);
    expect(thought.closest("details")?.open).toBe(false);
    expect(answers()[0]?.querySelector("em")?.textContent).toMatch(/^\d+$/);
    expect(screen.queryByRole("textbox")).toBeNull();
  });

  it("shows what models and tools write as text, whatever it looks like", async () => {
    await world.start("hostile-1", "Please be hostile.");
    await world.status("hostile-1", "COMPLETED");
    const page = show({ run: "hostile-1" });
    await waitFor(() => expect(answers()).toHaveLength(1), seconds);
    expect(answers()[0]?.textContent).toContain('<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>');
    const call = screen.getByRole("region", { name: "hostile_tool" });
    expect(call.dataset["state"]).toBe("done");
    expect(within(call).getByLabelText("Result").textContent).toContain("<img src=x onerror=window.pwned=1>");
    expect(within(call).getByLabelText("Arguments").textContent).toContain("<script>alert(1)</script>");
    expect(page.container.textContent).not.toContain("\u001b");
    expect(page.container.querySelectorAll("img, script, a, iframe")).toHaveLength(0);
    expect("pwned" in window).toBe(false);
  });

  it("asks in place whether a call may run, and tells the model why not", async () => {
    await world.start("publish-1", "Please publish otters.");
    show({ run: "publish-1" });
    const form = await screen.findByRole("form", { name: "May this call run?" }, seconds);
    expect(within(form).getByLabelText("Arguments").textContent).toContain('"title": "Otters"');
    fireEvent.click(within(form).getByRole("button", { name: "Deny…" }));
    fireEvent.change(within(form).getByRole("textbox", { name: "Why not?" }), { target: { value: "Not yet." } });
    fireEvent.submit(form);
    await waitFor(() => expect(screen.getByRole("region", { name: "publish" }).dataset["state"]).toBe("denied"), seconds);
    expect(screen.getByRole("region", { name: "publish" }).textContent).toContain("Denied. Not yet.");
    await waitFor(() => expect(answers()).toHaveLength(1), seconds);
  });

  it("asks for what a run below asks", async () => {
    await world.start("delegate-1", "Please delegate otters.");
    const page = show({ run: "delegate-1" });
    const form = await screen.findByRole("form", { name: "May this call run?" }, seconds);
    expect(form.closest("[data-tool=scout]")).toBeTruthy();
    fireEvent.click(within(form).getByRole("button", { name: "Approve" }));
    await waitFor(() => expect(page.container.querySelector("[data-status=COMPLETED]")).toBeTruthy(), seconds);
    expect(answers().at(-1)?.textContent).toContain("Both scouts are back");
    expect(screen.queryByRole("form", { name: "May this call run?" })).toBeNull();
  });

  it("is written in with the keyboard, and stopped while the agent writes", async () => {
    await world.start("chat-1", "Hello.", { config: { mode: "chat" } });
    await world.status("chat-1", "WAITING");
    show({ run: "chat-1" });
    const field = await screen.findByRole("textbox", { name: "Message" }, seconds);
    fireEvent.change(field, { target: { value: "Tell me a long story." } });
    fireEvent.keyDown(field, { key: "Enter", shiftKey: true });
    expect(screen.queryByRole("list", { name: "Not heard yet" })).toBeNull();
    fireEvent.keyDown(field, { key: "Enter" });
    expect(screen.getByRole("list", { name: "Not heard yet" }).textContent).toBe("Tell me a long story.");
    expect((field as HTMLTextAreaElement).value).toBe("");
    const from = () => within(log()).queryAllByRole("article", { name: "From the user" }).filter((each) => each.textContent === "Tell me a long story.");
    await waitFor(() => expect(from()).toHaveLength(1), seconds);
    await waitFor(() => expect(screen.getByRole("article", { name: "Being written" }).textContent).toContain("otters"), seconds);
    expect(screen.queryByRole("list", { name: "Not heard yet" })).toBeNull();
    fireEvent.click(await screen.findByRole("button", { name: "Stop" }, seconds));
    await world.status("chat-1", "WAITING");
    await waitFor(() => expect(screen.queryByRole("article", { name: "Being written" })).toBeNull(), seconds);
    expect(answers().length).toBeGreaterThan(1);
    expect(from()).toHaveLength(1);
  });

  it("says why a run has failed, and lets it be tried again", async () => {
    await world.ask("POST", "/agent-executions", { kind: "broken", id: "broken-1", input: "otter" });
    await world.status("broken-1", "FAILED");
    show({ run: "broken-1" });
    const notice = await screen.findByText(/There is no otter\./, {}, seconds);
    expect(notice.getAttribute("role")).toBe("alert");
    fireEvent.click(within(notice).getByRole("button", { name: "Try again" }));
    await waitFor(async () => expect((await world.ask<{ epoch: number }>("GET", "/agent-executions/broken-1")).epoch).toBeGreaterThan(1), seconds);
  });
});
