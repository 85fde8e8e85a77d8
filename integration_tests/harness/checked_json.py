# SPDX-License-Identifier: MIT
"""Dataclasses to JSON and back, strictly: what is read has exactly the fields and types that the classes declare.

Types are str, int, float (finite), bool, dataclasses, `tuple`, `dict`, `Literal`, `X | None`, and `Annotated` with
`AtLeast` or `MoreThan`. A field with a default may be left out.

No library does it, because the quick run on a card has torch and the standard library only.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class AtLeast:
    """A number that is not smaller."""

    bound: float

    def holds(self, value: float) -> bool:
        return value >= self.bound


@dataclass(frozen=True)
class MoreThan(AtLeast):
    """A number that is larger."""

    def holds(self, value: float) -> bool:
        return value > self.bound


def dumps(value: Any) -> str:
    """The text of a dataclass. ValueError when `loads` would not take it."""
    text = json.dumps(dataclasses.asdict(value), indent=1, allow_nan=False) + "\n"
    loads(type(value), text)
    return text


def loads(kind: type, text: str) -> Any:
    """The `kind` in a text. ValueError names the place of what is wrong."""
    return _read(kind, json.loads(text), kind.__name__)


def _read(kind: Any, value: Any, place: str) -> Any:
    if get_origin(kind) is Annotated:
        kind, *rules = get_args(kind)
        result = _read(kind, value, place)
        for rule in rules:
            _require(rule.holds(result), place, f"is {value}, beyond {rule.bound}")
        return result
    if get_origin(kind) in (Union, UnionType):
        (kind,) = set(get_args(kind)) - {NoneType}
        return None if value is None else _read(kind, value, place)
    if get_origin(kind) is Literal:
        _require(value in get_args(kind), place, f"is {value!r}, not one of {get_args(kind)}")
        return value
    if get_origin(kind) is tuple:
        _require(isinstance(value, list), place, "is not a list")
        kinds = get_args(kind)
        kinds = kinds[:1] * len(value) if kinds[-1] is ... else kinds
        _require(len(kinds) == len(value), place, f"has {len(value)} entries, not {len(kinds)}")
        return tuple(_read(k, v, f"{place}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
    if get_origin(kind) is dict:
        _require(isinstance(value, dict), place, "is not an object")
        return {name: _read(get_args(kind)[1], entry, f"{place}.{name}") for name, entry in value.items()}
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, place)
    if kind is float and type(value) in (int, float):
        _require(math.isfinite(value), place, f"is {value}, not a finite number")
        return float(value)
    _require(type(value) is kind, place, f"is {value!r}, not of type {kind.__name__}")
    return value


def _read_fields(kind: type, value: Any, place: str) -> Any:
    _require(isinstance(value, dict), place, "is not an object")
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in value:
        _require(name in fields, f"{place}.{name}", "is not a field")
    for name, field in fields.items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        _require(optional or name in value, f"{place}.{name}", "is missing")
    return kind(**{name: _read(hints[name], entry, f"{place}.{name}") for name, entry in value.items()})


def _require(condition: bool, place: str, fault: str) -> None:
    if not condition:
        raise ValueError(f"{place} {fault}")
