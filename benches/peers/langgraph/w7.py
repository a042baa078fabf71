"""W7 on LangGraph: one invocation of the graph of a tool-calling agent, the conversation in its state.

`full` uses `add_messages`, the default; `delta` its DeltaChannel (beta).
Usage: w7.py TURNS full|delta
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from engine import saver, thread
from harness.measure import emit
from harness.script import Script


class Full(TypedDict):
    messages: Annotated[list[Any], add_messages]


class Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


def main(turns: int, channel: str) -> None:
    script = Script(turns)

    def assistant(state: Any) -> dict[str, list[Any]]:
        messages = state["messages"]
        text = script.answer(message.content for message in messages)
        call = {"name": "look", "args": {}, "id": f"call-{len(messages)}"}
        return {"messages": [AIMessage(content=text, id=f"message-{len(messages)}", tool_calls=[call])]}

    def look(state: Any) -> dict[str, list[Any]]:
        (call,) = state["messages"][-1].tool_calls
        return {"messages": [ToolMessage(content=script.result(), id=f"of-{call['id']}", tool_call_id=call["id"])]}

    def more(state: Any) -> str:
        return "assistant" if len(state["messages"]) < 1 + 2 * turns else END

    graph = StateGraph(Full if channel == "full" else Delta)
    graph.add_node("assistant", assistant)
    graph.add_node("look", look)
    graph.add_edge(START, "assistant")
    graph.add_edge("assistant", "look")
    graph.add_conditional_edges("look", more, ["assistant", END])
    agent = graph.compile(checkpointer=saver())
    prompt = HumanMessage(content=script.begin(), id="prompt")
    agent.invoke({"messages": [prompt]}, thread("work"), durability="sync")
    emit(**script.ended())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
