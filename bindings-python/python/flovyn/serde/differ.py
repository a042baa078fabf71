"""What a value became on its way to the journal and back: the first place where it is not the same any more."""

from __future__ import annotations

import datetime
import enum
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from .. import _native
from .forms import form, key_form
from .shapes import SCALARS, is_exact, place

Renew = Callable[[Any, Any], Any]
"""Makes a value of the class of the first argument of what JSON has for it."""


class Difference(NamedTuple):
    """The place, what was there, and what of it came back."""

    steps: tuple[Any, ...]
    found: str
    why: str

    @property
    def path(self) -> str:
        """The place, such as ``$.items[3]``."""
        return place(str(step) if not isinstance(step, int) else step for step in self.steps)


def class_of(value: Any) -> type[Any]:
    """Return the class of a value."""
    return cast(Any, type(value))


def type_name(of: type) -> str:
    """Name a type as the engine does."""
    return of.__qualname__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__qualname__}"


def difference(value: Any, back: Any, renew: Renew | None, *, bare: bool = False) -> Difference | None:
    """Tell where a value is not what came back: equal, and of the same types.

    With ``renew`` what has no annotation may become what JSON has for it: a tuple a list, an enum its value, a moment
    its text, a dataclass or a model an object; ``renew`` is asked whether that object has all of it. Bytes become text
    only where the whole value is ``bare`` of any annotation that could have said so.
    """
    return _Differ(renew, bare).at((), value, back)


class _Differ:
    def __init__(self, renew: Renew | None, bare: bool) -> None:
        self._renew = renew
        self._bare = bare

    def at(self, steps: tuple[Any, ...], value: Any, back: Any) -> Difference | None:
        if value is back:
            return None
        of, now = class_of(value), class_of(back)
        if of is not now:
            return self._converted(steps, value, back)
        if of in SCALARS:
            return None if _same_scalar(value, back) else _other(steps, value, back)
        if isinstance(value, enum.Enum):
            return _other(steps, value, back)
        if hasattr(of, "__dataclass_fields__"):
            return self._fields(steps, value, back)
        if hasattr(of, "model_fields") and hasattr(of, "model_dump"):
            return self._model(steps, value, back)
        if isinstance(value, dict):
            return self._dict(steps, cast("dict[Any, Any]", value), cast("dict[Any, Any]", back))
        if isinstance(value, (list, tuple, deque)):
            return self._items(steps, cast("list[Any]", value), cast("list[Any]", back))
        if isinstance(value, (datetime.datetime, datetime.time)):
            same = value == back and value.fold == back.fold and _same_zone(value.tzinfo, back.tzinfo)
            return None if same else _other(steps, value, back, "; pass it in UTC or with a fixed offset")
        if isinstance(value, (set, frozenset)):
            ours, theirs = cast("set[Any]", value), cast("set[Any]", back)
            same = {(class_of(item), item) for item in ours} == {(class_of(item), item) for item in theirs}
            return None if same else _other(steps, ours, theirs)
        return None if _equal(value, back) else _other(steps, value, back)

    def _converted(self, steps: tuple[Any, ...], value: Any, back: Any) -> Difference | None:
        of, now = class_of(value), class_of(back)
        if self._renew is not None:
            if now is list and isinstance(value, (tuple, deque)):
                return self._items(steps, cast("Any", value), back)
            if now in SCALARS and isinstance(value, now) and value == back:
                return None
            if now is list and isinstance(value, (set, frozenset)):
                return self._set(steps, cast("set[Any]", value))
            if isinstance(value, enum.Enum):
                return self.at(steps, value.value, back)
            if self._stands_for(value, back):
                return None
            if now is dict and (hasattr(of, "__dataclass_fields__") or hasattr(of, "model_dump")):
                made = self._renew(value, back)
                if class_of(made) is of:
                    return self.at(steps, value, made)
                return Difference(steps, type_name(of), f", which cannot be made again of what would be stored: {made}")
        return Difference(steps, type_name(of), f", which would come back as {_a(now)}{_advice(of, now)}")

    def _stands_for(self, value: Any, back: Any) -> bool:
        """Whether JSON has for a value what came back, or what came back is of its base and stored alike."""
        if isinstance(value, (bytes, bytearray)) and not self._bare:
            return False
        try:
            made = form(value)
            return made == (form(back) if isinstance(value, class_of(back)) else back) and class_of(made) in SCALARS
        except Exception:
            # What has no form came back as something by its own doing.
            return False

    def _set(self, steps: tuple[Any, ...], value: set[Any] | frozenset[Any]) -> Difference | None:
        """Look at each item beside what JSON has for it: in which order they came back tells nothing."""
        for item in value:
            if (found := self.at(steps, item, _native.decode_json(_native.encode_json(item)))) is not None:
                return found
        return None

    def _items(self, steps: tuple[Any, ...], value: Any, back: Any) -> Difference | None:
        if len(value) != len(back):
            return _other(steps, value, back)
        for index, (item, now) in enumerate(zip(value, back, strict=True)):
            if (found := self.at((*steps, index), item, now)) is not None:
                return found
        return None

    def _dict(self, steps: tuple[Any, ...], value: dict[Any, Any], back: dict[Any, Any]) -> Difference | None:
        keys = {key: key for key in back}
        for key, item in value.items():
            if key not in keys:
                text = None if self._renew is None else key_form(key)
                if text is None or text not in keys:
                    return Difference(steps, _key(key), ", which would not come back; annotate it as what its keys are")
                if (found := self.at((*steps, text), item, back[text])) is not None:
                    return found
                continue
            if class_of(keys[key]) is not class_of(key):
                if self._renew is None or not isinstance(key, str):
                    return Difference(steps, _key(key), f", which would come back as {_a(class_of(keys[key]))}")
            if (found := self.at((*steps, key), item, back[key])) is not None:
                return found
        if len(value) != len(back):
            return _other(steps, value, back)
        if isinstance(value, defaultdict) and not _equal(value.default_factory, cast(Any, back).default_factory):
            return Difference(steps, type_name(class_of(value)), " with a factory, which would not come back")
        if isinstance(value, OrderedDict) and list(value) != list(back):
            why = " whose order would not come back: keys are stored sorted; pass a list of pairs"
            return Difference(steps, type_name(class_of(value)), why)
        return None

    def _fields(self, steps: tuple[Any, ...], value: Any, back: Any) -> Difference | None:
        unset = object()
        fields = value.__dataclass_fields__
        for name, field in fields.items():
            if field._field_type.name != "_FIELD":
                continue
            item, now = getattr(value, name, unset), getattr(back, name, unset)
            if (found := self.at((*steps, name), item, now)) is not None:
                return found
        return self._beside(steps, value, back, fields)

    def _model(self, steps: tuple[Any, ...], value: Any, back: Any) -> Difference | None:
        cls: Any = class_of(value)
        ours, theirs = value.__dict__, back.__dict__
        for name in cls.model_fields:
            item, now = ours.get(name), theirs.get(name)
            found = self.at((*steps, name), item, now)
            if found is None:
                continue
            if cls.model_fields[name].exclude:
                why = ", which its model excludes from what is stored: it would come back as its default"
                return Difference((*steps, name), type_name(class_of(item)), why)
            return found
        hidden: dict[str, Any] = value.__pydantic_private__ or {}
        renewed: dict[str, Any] = back.__pydantic_private__ or {}
        for name, item in hidden.items():
            # A client or a lock is made anew; data would be lost.
            if is_exact(item) and self.at((), item, renewed.get(name)) is not None:
                return Difference(
                    (*steps, name), type_name(class_of(item)), " in a private attribute, which is not stored"
                )
        extra: dict[str, Any] = value.__pydantic_extra__ or {}
        return self._dict(steps, extra, back.__pydantic_extra__ or {})

    def _beside(self, steps: tuple[Any, ...], value: Any, back: Any, fields: Any) -> Difference | None:
        """Look at attributes that are no fields; private ones are not part of the value."""
        ours: dict[str, Any] = getattr(value, "__dict__", {})
        theirs: dict[str, Any] = getattr(back, "__dict__", {})
        if len(ours) <= len(fields) and ours.keys() <= fields.keys():
            return None
        for name, item in ours.items():
            # A `cached_property` is kept under its own name and made again.
            if name in fields or name.startswith("_") or hasattr(class_of(value), name):
                continue
            if name not in theirs:
                why = f" in an attribute that is no field of {class_of(value).__qualname__}, so it would be lost"
                return Difference((*steps, name), type_name(class_of(item)), why + "; declare the field")
        return None


def _same_scalar(value: Any, back: Any) -> bool:
    if isinstance(value, float):
        return value == back and math.copysign(1, value) == math.copysign(1, back)
    return value == back


def _same_zone(one: datetime.tzinfo | None, other: datetime.tzinfo | None) -> bool:
    if one is None or other is None:
        return one is other
    fixed = one.utcoffset(None)
    return one == other or (fixed is not None and fixed == other.utcoffset(None))


def _equal(value: Any, back: Any) -> bool:
    try:
        return bool(value == back)
    except Exception:
        # Some types compare to something that is neither true nor false.
        return False


def _other(steps: tuple[Any, ...], value: Any, back: Any, advice: str = "") -> Difference:
    secret = hasattr(value, "get_secret_value")
    if secret:
        advice = ", and its text would be lost; keep secrets out of what is stored, or give the model a serializer"
        return Difference(steps, type_name(class_of(value)), f", which would come back masked{advice}")
    return Difference(steps, type_name(class_of(value)), f", which would come back as another value{advice}")


def _key(key: Any) -> str:
    return f"a dict with the key {key!r} of type {type_name(class_of(key))}"


def _a(of: type) -> str:
    name = "None" if of is type(None) else type_name(of)
    return name if name == "None" else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _advice(of: Any, now: Any) -> str:
    if enum.Enum in of.__mro__:
        return f"; annotate it as {of.__qualname__}, or pass its value"
    if now is list and tuple in of.__mro__:
        return "; pass a list, or annotate it as what it is"
    if hasattr(of, "__dataclass_fields__") or hasattr(of, "model_dump"):
        if now is dict:
            return f"; annotate it as {of.__qualname__}, by a name that is there when the program runs"
        return (
            f"; annotate it as {of.__qualname__}, or as a union whose members differ by a field "
            '(`kind: Literal["..."]`)'
        )
    if defaultdict in of.__mro__ and now is dict:
        return "; pass a dict, for its factory is not stored"
    json: frozenset[Any] = SCALARS | {dict, list}
    if now in json:
        return f"; pass {_a(now)}, or annotate it as what it is"
    if of in json:
        return f"; pass {_a(now)}"
    return "; annotate it as what it is"
