"""Reads an answer to `tools/list` with values that are not valid I-JSON: the fault stays with the tool that has it.

Such a tool is replaced by its name and the reason. So the draft leaves it out by name, and it equals no published tool.
Integers that a reader could round are kept unchanged: in a schema they are bounds, and the digest covers them.
"""

from __future__ import annotations

import json
from math import inf
from typing import Any, Final

from contextos.contracts.encoding.codec import MAX_DEPTH, MAX_NODES, MAX_NUMBER_CHARS, check_size
from contextos.errors import MalformedJson

UNREADABLE_TOOL: Final = "contextos.unreadable"
"""The member with the reason why a tool cannot be used."""
MAX_LISTING_DEPTH: Final = 4 * MAX_DEPTH


class _WithDuplicates(dict[str, Any]):
    """A JSON object that has a member twice."""


def read_listing(raw: bytes) -> dict[str, Any] | None:
    """Return an answer to `tools/list` with its faulty tools replaced; None if the fault is not in a tool."""
    try:
        check_size(raw, MAX_LISTING_DEPTH, MAX_NODES)
        answer = _DECODER.decode(raw.decode(errors="surrogateescape"))
    except (MalformedJson, ValueError, RecursionError):
        return None
    result = answer.get("result") if isinstance(answer, dict) and not isinstance(answer, _WithDuplicates) else None
    if not isinstance(result, dict) or isinstance(result, _WithDuplicates) or not isinstance(result.get("tools"), list):
        return None
    page = {name: result[name] for name in ("nextCursor",) if name in result}
    if _find_fault(page) or not isinstance(answer.get("id"), int | str):
        return None
    answer["result"] = {**page, "tools": [_readable_tool(tool) for tool in result["tools"]]}
    return {name: answer[name] for name in ("id", "jsonrpc", "result") if name in answer}


def _readable_tool(tool: Any) -> Any:
    fault = _find_fault(tool)
    if not fault:
        return tool
    name = tool.get("name") if isinstance(tool, dict) else None
    return {"name": name if isinstance(name, str) and not _find_fault(name) else "", UNREADABLE_TOOL: fault}


def _find_fault(value: Any) -> str:
    """Return the reason why a value cannot be used, or ""."""
    waiting = [(value, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH - 8:
            return "it is nested too deep"
        if isinstance(node, _WithDuplicates):
            return "an object of it has a member twice"
        if node in (inf, -inf) or node != node:
            return "it has a number that JSON does not carry"
        if isinstance(node, dict):
            waiting += [(part, depth + 1) for pair in node.items() for part in pair]
        elif isinstance(node, list):
            waiting += [(part, depth + 1) for part in node]
        elif isinstance(node, str) and any("\ud800" <= character <= "\udfff" for character in node):
            return "a text of it holds half a character"
    return ""


def _read_number(literal: str) -> int | float:
    if len(literal) > MAX_NUMBER_CHARS:
        return inf
    return float(literal) if literal.strip("-0123456789") else int(literal)


def _read_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    return result if len(result) == len(pairs) else _WithDuplicates(pairs)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_read_pairs, parse_int=_read_number, parse_float=_read_number, parse_constant=lambda _: inf
)
