"""What agents have in common that the toolkit runs in Rust: their Python declares them, and is never entered."""

from __future__ import annotations

from typing import Any

from ..agent import Agent, I, R
from ..serde import Signature


class NativeAgent(Agent[I, R]):
    """An agent whose worker runs it natively."""

    is_native = True

    def __init__(self, kind: str, description: str | None) -> None:
        async def native(_: Any, input: Any = "") -> Any:
            raise NotImplementedError(f"agent {kind!r} is native; its worker runs it")

        super().__init__(
            native,
            kind=kind,
            version=None,
            state=None,
            migrate=None,
            on_divergence="continue",
            on_error=None,
            replay_timeout=None,
            signals=None,
            timeout=None,
            name=None,
            description=description,
            tags=(),
            cancellable=True,
            signature=Signature(native, "AgentContext", first_is_context=True),
        )
