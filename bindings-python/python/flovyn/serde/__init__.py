"""Values between Python and the journal: what an annotation rebuilds, how a call's arguments become one value.

The text itself is written and read in Rust. Here is only what needs Python's types: dataclasses and pydantic models
behind annotations, the binding of arguments, and the refusal of what would come back as something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .codec import Codec, Rebuild, checked, codec_of, rebuilder
from .kept import is_plain, refusal
from .resolve import hints_of, local_names
from .serializer import Own, Pair, Serializer, own_serializer
from .shapes import STRICT, Unfit, accepted
from .signature import Signature

__all__ = [
    "STRICT",
    "Codec",
    "Own",
    "Pair",
    "Rebuild",
    "Serializer",
    "Signature",
    "Unfit",
    "accepted",
    "checked",
    "codec_of",
    "described",
    "hints_of",
    "is_plain",
    "local_names",
    "own_serializer",
    "rebuilder",
    "refusal",
]


def described(value: Any) -> Any:
    """Return the JSON of what describes itself, such as a budget of the toolkit, and anything else as it is."""
    describe: Callable[[], Any] | None = getattr(value, "describe", None)
    return value if describe is None else describe()
