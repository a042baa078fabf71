"""A server of the public Python package, for the tests of the MCP client: tools, a resource, a prompt, a question, and a tool
that adds another one."""

from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("lake", instructions="Ask for depths before anybody swims.")


class Depth(BaseModel):
    metres: int


class Swimmer(BaseModel):
    name: str
    is_brave: bool = False


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def depth(lake: str) -> Depth:
    """How deep a lake is."""
    return Depth(metres=len(lake))


@server.resource("lake://otters")
def otters() -> str:
    """Who lives here."""
    return "Ada and Bob"


@server.prompt()
def describe(lake: str, style: str = "short") -> str:
    """Asks for a description of a lake."""
    return f"Describe {lake} in a {style} way."


def who() -> Elicit[Swimmer]:
    return Elicit("Who swims?", Swimmer)


@server.tool()
def swim(lake: str, swimmer: Annotated[Swimmer, Resolve(who)]) -> str:
    """Lets somebody swim."""
    return f"{swimmer.name} swims in {lake}, brave: {swimmer.is_brave}."


def dive() -> str:
    """Lets somebody dive."""
    return "They dive."


@server.tool()
async def teach(ctx: Context) -> str:
    """Teaches everybody to dive."""
    server.add_tool(dive)
    await ctx.notify_tools_changed()
    return "They can dive now."


if __name__ == "__main__":
    server.run("stdio")
