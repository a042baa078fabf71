"""What the toolkit may use in a process: providers, MCP servers, directories, the sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..declared import listed

Api = Literal["anthropic-messages", "openai-chat", "openai-responses"]
"""The wires that providers speak."""


@dataclass(frozen=True)
class Provider:
    """How a provider is reached. One that Flovyn knows (``anthropic``, …) needs neither ``api`` nor ``base_url``."""

    api: Api | None = None
    base_url: str | None = None
    """Its address, as the provider's own clients take it."""
    key: str | None = field(default=None, repr=False)
    key_variable: str | None = None
    """The environment variable that holds its key, in place of ``key``."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    structured: bool = False
    """Whether it can force answers into the form of a JSON Schema; else a model gives them by a call."""
    images: bool = False
    """Whether its models take images, where Flovyn does not know them; else a line of text stands for each."""

    def describe(self) -> dict[str, Any]:
        """Return the provider as the kit reads it."""
        given = {"api": self.api, "baseUrl": self.base_url, "key": self.key, "keyVariable": self.key_variable}
        rest = {"headers": dict(self.headers), "structured": self.structured, "images": self.images}
        return {name: value for name, value in given.items() if value is not None} | rest


@dataclass(frozen=True)
class Toolkit:
    """What a worker lends to agents: models, host tools by name, MCP servers.

    ``client.worker(agents=[mine], toolkit=Toolkit(...))``. Without one, models are those whose keys are in the
    environment, and tools work in the current directory. The tools that an agent's code names (``tools.read(...)``)
    are served by themselves; those it calls by a computed name belong into ``tools``.
    """

    tools: Sequence[str] = ()
    """Host and MCP tools by name; ``mcp__server__*`` is all of a server."""
    working_directory: str | os.PathLike[str] | None = None
    """Where tools work unless a run says otherwise."""
    roots: Sequence[str | os.PathLike[str]] = ()
    """Other directories that runs may name."""
    sandbox: bool | None = None
    """Whether commands run confined; they do unless given."""
    network: bool | None = None
    """Whether confined commands may use the network; they may not unless given."""
    fetch_allowed_hosts: Sequence[str] = ()
    """Hosts that ``fetch`` may ask without a person being asked; ``*.example.com`` is all below a domain."""
    fetch_private_hosts: Sequence[str] = ()
    """Hosts that ``fetch`` may ask although their addresses are not of the public internet."""
    add_dirs: Sequence[str | os.PathLike[str]] = ()
    """Directories beside the working directory, whose files tools and commands may read and write."""
    variables: Sequence[str] = ()
    """Variables that commands see beside the usual ones; ``NAME*`` stands for all that begin so."""
    caches: Literal["private", "user"] | None = None
    """The package caches of confined commands: their own unless given, or those of the user."""
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]], repr=False)
    """MCP servers by name, as MCP clients write them: ``{"fs": {"command": "mcp-server-files", "args": ["."]}}``."""
    providers: Mapping[str, Provider] = field(default_factory=dict[str, Provider])
    """Providers by name, beside those whose keys are in the environment or in place of them."""
    records: str | os.PathLike[str] | None = None
    """The folder for records of calls that change something; one of the user's unless given."""

    def describe(self) -> dict[str, Any]:
        """Return what is given as the kit reads it."""
        given: dict[str, Any] = {
            "tools": listed("tools", self.tools),
            "workingDirectory": absolute(self.working_directory),
            "roots": [absolute(root) for root in listed("roots", self.roots)],
            "sandbox": self.sandbox,
            "network": self.network,
            "fetch": {
                "allowedHosts": listed("fetch_allowed_hosts", self.fetch_allowed_hosts),
                "privateHosts": listed("fetch_private_hosts", self.fetch_private_hosts),
            },
            "addDirs": [absolute(folder) for folder in listed("add_dirs", self.add_dirs)],
            "variables": listed("variables", self.variables),
            "caches": self.caches,
            "mcpServers": {name: dict(server) for name, server in self.mcp_servers.items()},
            "providers": {name: provider.describe() for name, provider in self.providers.items()},
            "records": absolute(self.records),
        }
        return {name: value for name, value in given.items() if value is not None}


def absolute(path: str | os.PathLike[str] | None) -> str | None:
    """Return a path from the root, so that it means the same when the process has moved."""
    return None if path is None else str(Path(path).absolute())
