"""Wrong variants of a JSON value: fields taken away, retyped and added, and values made to hurt a reader."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]


def nested(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


HURTFUL: tuple[Any, ...] = (
    "x" * 600,
    "x" * 300_000,
    "a" * 40 + "!",
    "\ud800",
    "\u0000",
    "ｉｄ",
    "R_X\n",
    "",
    " ",
    "(a+)+$",
    2**53 - 1,
    2**53,
    -(2**53),
    10**25,
    1e300,
    5e-324,
    -0.0,
    1.0,
    0.00001,
    -1,
    float("nan"),
    float("inf"),
    {f"key{number}": number for number in range(1_200)},
    {"": ""},
    {"__proto__": 1},
    {"a": {"b": {"c": []}}},
    [None] * 11_000,
    [[]] * 70,
    nested(60),
    nested(90),
    {"\ud800": 1},
)
"""Huge, tiny, deep, wide, half, twice; text that regular expressions choke on."""

ORDINARY: tuple[Any, ...] = (None, True, False, 0, 1, 25, 0.5, "text", "sha256:...", [], {}, ["text"], [1], {"a": 1})

CULPRITS = (st.sampled_from(ORDINARY) | st.sampled_from(HURTFUL)).map(copy.deepcopy)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place of a value, the whole included."""
    yield path
    if isinstance(value, dict):
        for key, child in value.items():
            yield from places(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from places(child, (*path, index))


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The value with one to three changes: a place deleted, replaced, extended or given an unknown neighbour."""
    box = [copy.deepcopy(value)]
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from(list(islice(places(box), 1, 200))))
        node: Any = box
        for step in above:
            node = node[step]
        change = draw(st.sampled_from(["delete", "replace", "extend", "neighbour"]))
        if change == "delete" and node is not box:
            del node[last]
        elif change == "extend" and isinstance(node[last], list):
            node[last] = copy.deepcopy(node[last] or [draw(CULPRITS)]) * draw(st.sampled_from([2, 20]))
        elif change == "neighbour" and isinstance(node, dict):
            node[draw(st.sampled_from(["unknown", "Trace_id", "if", "from", "", "metadata"]))] = draw(CULPRITS)
        else:
            node[last] = draw(CULPRITS)
    return box[0]


@st.composite
def spoiled(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes with one defect that no JSON value has: a key twice, cut short, a byte flipped, a mark in front."""
    at = draw(st.integers(0, len(raw) - 1))
    defect = draw(st.sampled_from(["twice", "cut", "flip", "mark", "tail"]))
    if defect == "twice":
        opened = [index for index, byte in enumerate(raw) if byte == ord("{")]
        at = draw(st.sampled_from(opened)) + 1
        return raw[:at] + b'"twice": 1, "twice": 2' + (b"" if raw[at : at + 1] == b"}" else b",") + raw[at:]
    if defect == "cut":
        return raw[:at]
    if defect == "flip":
        return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
    return b"\xef\xbb\xbf" + raw if defect == "mark" else raw + b" {}"


def dumped(value: Any) -> bytes:
    """JSON as a careless sender writes it: NaN, Infinity and half characters included."""
    return json.dumps(value).encode()
