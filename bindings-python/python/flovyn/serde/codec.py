"""An annotation at work: it rebuilds what was stored, and refuses to store what would not come back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import _native
from ..errors import NotSerializable
from .shapes import ANY, LENIENT, STRICT, Shape, Unfit, is_exact, shown

if TYPE_CHECKING:
    from .differ import Difference

Rebuild = Callable[[Any], Any]


class Codec:
    """Rebuilds and checks values of one annotation."""

    __slots__ = ("hint", "rebuild", "shape")

    def __init__(self, hint: Any, shape: Shape) -> None:
        self.hint = hint
        self.shape = shape
        self.rebuild: Rebuild | None = None if shape.plain else lambda value: shape.read(value, LENIENT)
        """What turns decoded JSON into the annotated type; none where JSON is the value already."""

    def check(self, value: Any) -> Any:
        """Return the value; refuse one that would come back as something else.

        Without an annotation JSON's own conversions stand: what an await delivers of a tuple is a list, of a dataclass
        an object. JSON is also accepted for what it stands for by the annotation; whether it does the reader learns.
        """
        if not _is_exact(value) and not self._fits(value):
            self._go_and_come(value, LENIENT)
        return value

    def check_state(self, value: Any) -> Any:
        """Return the value; refuse one that is not the very same after it was stored.

        A state is used as it is until a crash, so nothing of it may become what JSON has for it.
        """
        if not self._fits(value):
            self._go_and_come(value, STRICT)
        return value

    def _fits(self, value: Any) -> bool:
        try:
            return self.shape.fits(value)
        except Exception:
            # It may hold itself, or refuse to be looked at; the engine says so.
            return False

    def _go_and_come(self, value: Any, level: int) -> None:
        if type(value) is bytes or type(value).__module__ == "flovyn.blob":
            # Raw payloads; whether one is read as bytes or as a blob is for whoever reads it to say.
            self._read(value, level)
            return
        raw = isinstance(value, (bytes, bytearray))
        stored = bytes(value) if raw else _native.decode_json(_native.encode_json(value))
        back = stored if stored is None or (self.shape.plain and not level) else self._read(stored, level)
        # Few values come here, so no program pays for it when it starts.
        from .differ import difference

        found = difference(value, back, _renewed if level == LENIENT else None, bare=self.shape.plain)
        if found is not None:
            raise _refusal(found)

    def _read(self, stored: Any, level: int) -> Any:
        try:
            return self.shape.read(stored, level)
        except Unfit as unfit:
            raise _unreadable(unfit) from unfit
        except Exception as error:
            raise _unreadable(Unfit(shown(stored), f"{type(error).__name__}: {error}")) from error


def _is_exact(value: Any) -> bool:
    try:
        return is_exact(value)
    except Exception:
        # A class may refuse to be compared; the engine says what is wrong with it.
        return False


def _unreadable(unfit: Unfit) -> NotSerializable:
    return NotSerializable(
        f"the value at {unfit.path} could not be read back: it would be stored as {unfit.found}, but {unfit.wanted}",
        context={"path": unfit.path, "type": unfit.found},
    )


def _refusal(found: Difference) -> NotSerializable:
    article = "" if found.found.startswith("a ") else "a "
    return NotSerializable(
        f"the value at {found.path} is {article}{found.found}{found.why}",
        context={"path": found.path, "type": found.found},
    )


def _shape_of(hint: Any, local: Mapping[str, Any] | None = None) -> Shape:
    from .hints import shape_of

    return shape_of(hint, local=local)


def _renewed(value: Any, back: Any) -> Any:
    try:
        return _shape_of(type(value)).read(back, LENIENT)
    except Exception as error:
        return error


_UNANNOTATED = Codec(Any, ANY)


@functools.lru_cache(maxsize=1024)
def _cached(hint: Any, written: str) -> Codec:
    return Codec(hint, _shape_of(hint))


def codec_of(hint: Any, *, local: Mapping[str, Any] | None = None) -> Codec:
    """Return the codec of an annotation, the same one for the same annotation.

    ``local`` has the names around the annotation, where it is inside of a function.
    """
    try:
        if local is None:
            # Unions are equal whatever the order of their members, which may decide; so it is part of the key.
            return _cached(hint, "" if isinstance(hint, type) and not hasattr(hint, "__args__") else repr(hint))
    except TypeError:
        # There is something in it that has no hash.
        pass
    return Codec(hint, _shape_of(hint, local=local))


def rebuilder(hint: Any) -> Rebuild | None:
    """Return what turns decoded JSON into the annotated type; none where JSON is the value already."""
    return codec_of(hint).rebuild


def checked(value: Any) -> Any:
    """Return a value without an annotation; refuse one that has no JSON form or would lose something in it."""
    return _UNANNOTATED.check(value)


def under(name: str, error: NotSerializable) -> NotSerializable:
    """Say of a refused part of a value where it is in the whole."""
    path = f"$.{name}{error.path[1:]}"
    message = error.message.replace(f"at {error.path} ", f"at {path} ", 1)
    return NotSerializable(message, context={**error.context, "path": path})
