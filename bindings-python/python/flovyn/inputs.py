"""What an agent is started with: checked once, where whoever gave it can be told.

A stored input is not checked again. Its code may have changed since, and a rule may have been about the moment of the
start; a run that was accepted goes on with what it was accepted with.
"""

from __future__ import annotations

from typing import Any, cast

from . import _native
from .errors import InvalidArgument
from .serde import STRICT, Codec, Signature, Unfit
from .serde.shapes import EXACT, is_exact


class _NotGiven:
    def __repr__(self) -> str:
        return "..."


NOT_GIVEN: Any = _NotGiven()
"""Stands where no input was given: ``None`` is one."""


def input_of(kind: str, signature: Signature, given: Any) -> Any:
    """Return the value that stands for an agent's input; refuse one that its function cannot take."""
    names = signature.names
    if not names:
        if given is NOT_GIVEN or given is None:
            return None
        raise InvalidArgument(
            f"agent {kind!r} takes no input, but {_shown(given)} was given as one. What says how to start it is given "
            "by name, as in start(agent, id=…); an agent takes an input as its second parameter, after the context"
        )
    if len(names) == 1:
        if signature.own is not None and given is not NOT_GIVEN and given is not None:
            return signature.own_input(given)
        return _only(kind, signature, names[0], given)
    return _several(kind, signature, given)


def _only(kind: str, signature: Signature, name: str, given: Any) -> Any:
    codec = signature.codec(name)
    left_out = given is NOT_GIVEN or given is None
    if left_out and (name not in signature.single or name in signature.defaults):
        return None
    # Unsaid, only an annotation allows it.
    if left_out and not (_takes_none(codec) and (given is None or signature.is_annotated(name))):
        of = "" if codec.hint is Any else f" ({_type(codec)})"
        raise InvalidArgument(
            f"agent {kind!r} needs an input, its parameter {name!r}{of}, but was given "
            f"{'None' if given is None else 'none'}: pass it after the agent, or give the parameter a default"
        )
    return _fitting(f"the input of agent {kind!r}", codec, None if left_out else given)


def _several(kind: str, signature: Signature, given: Any) -> Any:
    parts: Any = {} if given is NOT_GIVEN else given
    if not isinstance(parts, dict):
        raise InvalidArgument(
            f"agent {kind!r} takes one input or none; make it one dataclass or dict: its parameters "
            f"({', '.join(signature.names)}) are filled from a dict by name, and {_shown(given)} was given"
        )
    items = cast("dict[str, Any]", parts)
    missing = [name for name in signature.single if name not in items and name not in signature.defaults]
    strange = [name for name in items if name not in signature.names]
    if missing or strange:
        wrong = [f"has no {name!r}" for name in missing] + [f"has {name!r}, which is no parameter" for name in strange]
        raise InvalidArgument(f"the input of agent {kind!r} {' and '.join(wrong)}: {_shown(given)}")
    if signature.own is not None:
        return signature.own_input(items)
    for name, part in items.items():
        _fitting(f"{name!r} in the input of agent {kind!r}", signature.codec(name), part)
    return signature.check_input(items)


def _takes_none(codec: Codec) -> bool:
    try:
        codec.shape.read(None, EXACT)
    except Exception:
        return False
    return True


def _fitting(what: str, codec: Codec, value: Any) -> Any:
    # What is JSON already can only be of the wrong type; anything else may also be what has no JSON form, and says so.
    plain = is_exact(value)
    if not plain:
        codec.check(value)
    raw = isinstance(value, (bytes, bytearray)) or type(value).__module__ == "flovyn.blob"
    try:
        codec.shape.read(value if raw else _native.decode_json(_native.encode_json(value)), STRICT)
    except Unfit as unfit:
        raise InvalidArgument(f"{what} does not fit {_type(codec)}: {unfit.told}") from unfit
    except Exception as error:
        raise InvalidArgument(f"{what} does not fit {_type(codec)}: {type(error).__name__}: {error}") from error
    if plain:
        codec.check(value)
    return value


def _type(codec: Codec) -> str:
    name = getattr(codec.hint, "__qualname__", None)
    return name or str(codec.hint).replace("typing.", "")


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= 80 else text[:77] + "…"
