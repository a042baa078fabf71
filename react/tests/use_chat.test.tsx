// @vitest-environment jsdom
// `useChat` itself, in a page that is closed in the middle of an answer and opened again, while a tool asks before it runs.
import { useChat } from "@ai-sdk/react";
import { cleanup, fireEvent, render, waitFor } from "@testing-library/react";
import { isToolUIPart, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import type { UIMessage } from "ai";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { flovynTransport, isRetracted, loadMessages } from "../src/front_ends/ai_sdk.js";
import { Processes } from "./world.js";

let world: Processes;
beforeAll(async () => {
  world = await Processes.open();
  await world.ask("POST", "/agent-definitions", { slug: "otters", kind: "react-agent", tools: ["publish"] });
});
afterAll(() => world?.close());
afterEach(cleanup);

const where = () => ({ url: world.url, token: () => world.token() });
const seconds = { timeout: 60_000, interval: 25 };

function Page({ first }: { first: UIMessage[] }) {
  const transport = flovynTransport({ ...where(), definition: "otters" });
  const chat = useChat({ id: "page", messages: first, transport, resume: true, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
  const shown = (part: UIMessage["parts"][number], key: number) => {
    if (part.type === "text" && !isRetracted(part)) return <span key={key}>{part.text}</span>;
    if (!isToolUIPart(part)) return null;
    const { approval, state } = part;
    return state === "approval-requested" ? <button key={key} onClick={() => void chat.addToolApprovalResponse({ id: approval?.id ?? "", approved: true })}>allow</button> : <i key={key}>{state}</i>;
  };
  return (
    <div>
      <div data-testid="chat">{chat.messages.map((message) => <p key={message.id}>{message.role}: {message.parts.map(shown)}</p>)}</div>
      <button onClick={() => void chat.sendMessage({ text: "A short story, please." })}>story</button>
      <button onClick={() => void chat.sendMessage({ text: "Please publish." })}>publish</button>
      <output>{chat.status}</output>
    </div>
  );
}

async function open() {
  const first = await loadMessages("page", where());
  const page = render(<Page first={first} />);
  return { ...page, text: () => page.getByTestId("chat").textContent ?? "", status: () => page.container.querySelector("output")?.textContent };
}

it("shows what is under way and what is asked to whoever opens the page", async () => {
  let page = await open();
  fireEvent.click(page.getByText("publish"));
  await waitFor(() => expect(page.getByText("allow")).toBeTruthy(), seconds);
  page.unmount();
  page = await open();
  await waitFor(() => expect(page.getByText("allow")).toBeTruthy(), seconds);
  const published = "user: Please publish.assistant: output-availableThat is done.";
  // What is clicked while a page is shown what is under way, it is shown anew.
  await waitFor(() => {
    page.queryAllByText("allow").forEach((button) => fireEvent.click(button));
    expect(page.text()).toBe(published);
  }, seconds);
  await waitFor(() => expect(page.status()).toBe("ready"), seconds);

  fireEvent.click(page.getByText("story"));
  await waitFor(() => expect(page.text().length).toBeGreaterThan(300), seconds);
  page.unmount();
  page = await open();
  await waitFor(() => expect(page.status()).toBe("streaming"), seconds);
  await waitFor(() => expect(page.status()).toBe("ready"), seconds);
  expect(page.text().startsWith(`${published}user: A short story, please.assistant: ##`)).toBe(true);
  expect(page.text().match(/What otters eat/g)).toHaveLength(3);
});
