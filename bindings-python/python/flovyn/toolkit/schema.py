"""JSON Schemas of functions' arguments, from their annotations and docstrings.

What a model is shown of a function: its parameters by name, their types, the defaults it may leave out, and what the
docstring says of them. What has no JSON form is refused when the tool is declared, not when a model calls it.
"""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Union, cast

from .. import _native
from ..errors import FlovynError, InvalidArgument
from ..serde import hints_of

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    Any: {},
    object: {},
}
_TEXTS: dict[tuple[str, str], Schema] = {
    ("datetime", "datetime"): {"type": "string", "format": "date-time"},
    ("datetime", "date"): {"type": "string", "format": "date"},
    ("datetime", "time"): {"type": "string", "format": "time"},
    ("datetime", "timedelta"): {"type": "string", "format": "duration"},
    ("uuid", "UUID"): {"type": "string", "format": "uuid"},
    ("decimal", "Decimal"): {"type": "string", "description": "an exact decimal number, such as 1.10"},
    ("builtins", "bytes"): {"type": "string", "contentEncoding": "base64"},
}
"""Types that are text in JSON (``docs/values.md``)."""
_UNIONS = (Union, getattr(types, "UnionType", Union))


def parameters_of(fn: Callable[..., Any], names: Sequence[str], local: Mapping[str, Any] | None = None) -> Schema:
    """Return the JSON Schema of a function's parameters of these names: an object that takes nothing else."""
    hints = hints_of(fn, local)
    described = _parameter_docs(inspect.getdoc(fn) or "")
    signature = inspect.signature(fn, follow_wrapped=False)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    definitions: dict[str, Schema] = {}
    for name in names:
        place = f"parameter {name!r} of {fn.__name__}()"
        parameter = signature.parameters[name]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidArgument(f"{place} takes any number of arguments, which a model cannot be told; name them")
        schema = _Schemas(definitions).of(hints.get(name, Any), place)
        if name in described:
            schema.setdefault("description", described[name])
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            schema |= _default(parameter.default)
        properties[name] = schema
    whole: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        whole["required"] = required
    if definitions:
        whole["$defs"] = definitions
    return whole


def schema_of(hint: Any) -> Schema:
    """Return the JSON Schema of an annotation."""
    definitions: dict[str, Schema] = {}
    schema = _Schemas(definitions).of(hint, "the type")
    return schema | {"$defs": definitions} if definitions else schema


class _Schemas:
    """Makes schemas; classes become definitions, so that one may hold itself."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions

    def of(self, hint: Any, place: str) -> Schema:
        if isinstance(hint, typing.Hashable) and hint in _PLAIN:
            return dict(_PLAIN[hint])
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hasattr(hint, "__metadata__"):
            return self._annotated(hint, place)
        if str(origin).rpartition(".")[2] in ("Required", "NotRequired", "ReadOnly"):
            return self.of(arguments[0], place)
        if origin is typing.Literal:
            return self._choice(list(arguments))
        if origin in _UNIONS:
            return self._union(arguments, place)
        if origin is tuple:
            return self._tuple(arguments, place)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1], place)}
        if isinstance(origin, type) and issubclass(origin, (Sequence, AbstractSet)):
            return {"type": "array", "items": self.of(arguments[0], place)}
        if isinstance(hint, type):
            return self._class(cast("type[Any]", hint), place)
        raise InvalidArgument(
            f"{place} is annotated {hint!r}, which has no JSON Schema; use JSON's types, Literal, an Enum, a "
            "dataclass, a TypedDict or a pydantic model"
        )

    def _annotated(self, hint: Any, place: str) -> Schema:
        schema = self.of(typing.get_args(hint)[0], place)
        for note in hint.__metadata__:
            text = note if isinstance(note, str) else getattr(note, "description", None)
            if isinstance(text, str):
                schema["description"] = text
        return schema

    def _union(self, arguments: tuple[Any, ...], place: str) -> Schema:
        members = [self.of(argument, place) for argument in arguments]
        if all(set(member) == {"type"} for member in members):
            return {"type": [member["type"] for member in members]}
        return {"anyOf": members}

    def _tuple(self, arguments: tuple[Any, ...], place: str) -> Schema:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return {"type": "array", "items": self.of(arguments[0], place)}
        items = [self.of(argument, place) for argument in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}

    def _class(self, cls: type[Any], place: str) -> Schema:
        if issubclass(cls, enum.Enum):
            return self._choice([_native.decode_json(_native.encode_json(member)) for member in cls])
        if (text := _TEXTS.get((cls.__module__, cls.__name__))) is not None:
            return dict(text)
        if any(base.__name__ == "PurePath" and base.__module__.startswith("pathlib") for base in cls.__mro__):
            return {"type": "string"}
        if hasattr(cls, "model_json_schema"):
            return self._pydantic(cls)
        if hasattr(cls, "__dataclass_fields__") or typing.is_typeddict(cls):
            return self._record(cls, place)
        if issubclass(cls, (Sequence, AbstractSet)) and cls not in (bytes, bytearray):
            return {"type": "array"}
        if issubclass(cls, Mapping):
            return {"type": "object"}
        raise InvalidArgument(
            f"{place} is a {cls.__qualname__}, which has no JSON Schema; use JSON's types, Literal, an Enum, a "
            "dataclass, a TypedDict or a pydantic model"
        )

    @staticmethod
    def _choice(values: list[Any]) -> Schema:
        kinds = {_PLAIN[type(value)]["type"] for value in values if type(value) in _PLAIN}
        schema: Schema = {"enum": values}
        return {"type": kinds.pop(), **schema} if len(kinds) == 1 else schema

    def _pydantic(self, cls: Any) -> Schema:
        schema: Schema = cls.model_json_schema(ref_template="#/$defs/{model}")
        self._definitions.update(schema.pop("$defs", {}))
        self._definitions[cls.__name__] = schema
        return {"$ref": f"#/$defs/{cls.__name__}"}

    def _record(self, cls: Any, place: str) -> Schema:
        name = cls.__name__
        if name not in self._definitions:
            self._definitions[name] = {}
            self._definitions[name] = self._fields(cls, place)
        return {"$ref": f"#/$defs/{name}"}

    def _fields(self, cls: Any, place: str) -> Schema:
        hints = hints_of(cls)
        required: list[str] = []
        properties: dict[str, Schema] = {}
        if typing.is_typeddict(cls):
            properties = {name: self.of(hint, f"{name!r} in {place}") for name, hint in hints.items()}
            required = [name for name in hints if name in cls.__required_keys__]
        else:
            import dataclasses

            for field in dataclasses.fields(cls):
                if not field.init:
                    continue
                schema = self.of(hints.get(field.name, Any), f"{field.name!r} in {place}")
                if field.default is not dataclasses.MISSING:
                    schema |= _default(field.default)
                elif field.default_factory is dataclasses.MISSING:
                    required.append(field.name)
                properties[field.name] = schema
        whole: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            whole["required"] = required
        documented: str | None = vars(cast("type[object]", cls)).get("__doc__")
        if documented and documented != dict.__doc__ and not documented.startswith(f"{cls.__name__}("):
            whole["description"] = inspect.cleandoc(documented)
        return whole


def _default(value: Any) -> Schema:
    try:
        return {"default": _native.decode_json(_native.encode_json(value))}
    except FlovynError:
        return {}


_SECTION = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ARGUMENT = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_FIELD = re.compile(r"^\s*:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$")


def description_of(doc: str) -> str:
    """Return what a docstring says of the function itself: all before its sections."""
    lines: list[str] = []
    for line in doc.splitlines():
        if re.match(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?):\s*$", line) or _FIELD.match(line):
            break
        lines.append(line)
    return "\n".join(lines).strip()


def _parameter_docs(doc: str) -> dict[str, str]:
    """Return what a docstring says of each parameter, in the styles of Google and Sphinx."""
    found: dict[str, str] = {}
    section, depth, last = False, 0, ""
    for line in doc.splitlines():
        field = _FIELD.match(line)
        if field:
            last = field[1]
            found[last] = field[2].strip()
            continue
        if _SECTION.match(line):
            section, depth, last = True, 0, ""
            continue
        if not section:
            continue
        if line and not line[0].isspace():
            break
        argument = _ARGUMENT.match(line)
        indent = len(line) - len(line.lstrip())
        if argument and (depth == 0 or indent == depth):
            depth, last = indent, argument[2]
            found[last] = argument[3].strip()
        elif last and line.strip():
            found[last] += f" {line.strip()}"
    return found
