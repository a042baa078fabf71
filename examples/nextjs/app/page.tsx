// Reads the conversation where the key is, and shows the chat.
import { loadMessages } from "@flovyn/react/ai-sdk";
import { Chat } from "./chat";

export default async function Page({ searchParams }: { searchParams: Promise<{ chat?: string }> }) {
  const { chat = "otters-1" } = await searchParams;
  const { FLOVYN_URL: url = "http://127.0.0.1:8080", FLOVYN_TOKEN: token = "" } = process.env;
  return <Chat id={chat} first={await loadMessages(chat, { url, token })} />;
}
