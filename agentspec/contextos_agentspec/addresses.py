"""Lint of the addresses that the API calls of a selection go to: all of them to one server, which no input names."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from contextos_agentspec.components import FlowGraph, text_of
from contextos_agentspec.selection_node import steps_doing

BASE: Final = "{{CINATRA_BASE_URL}}"
"""The only placeholder of an address. The loader of the agent fills it; an input of the node cannot."""

ADDRESS_REMEDY: Final = f"call `{BASE}/api/context-…`, or one server by its name, and nothing else"

_ORIGIN: Final = re.compile(r"(\{\{[^{}]*\}\}|https?://[^/?#]*)?(?:[/?#]|$)", re.IGNORECASE)
_HOST: Final = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")


def address_fault(graph: FlowGraph, name: str) -> str:
    """Return what is wrong with the address of an API node of a selection flow, or an empty string."""
    url = text_of(graph.nodes[name].value.get("url"))
    origin = _origin(url)
    if "{" in url.removeprefix(BASE) or (origin == BASE and "CINATRA_BASE_URL" in _fed(graph, name)):
        return "has an address that an input can change"
    if origin is None:
        return "has no address that can be read"
    if origin.lower().startswith("http") and (fault := _host_fault(origin)):
        return fault
    selecting = steps_doing(graph, "resolve") | steps_doing(graph, "finalize")
    if name not in selecting:
        return "calls something other than the selection"
    origins = {_origin(text_of(graph.nodes[one].value.get("url"))) for one in steps_doing(graph, "resolve")}
    return "" if origins <= {origin} else "calls another server than the step that resolves the slot"


def _origin(url: str) -> str | None:
    found = _ORIGIN.match(url)
    return (found[1] or "") if found else None


def _host_fault(origin: str) -> str:
    if "@" in origin:
        return "has user info in its address"
    found = _HOST.fullmatch(origin)
    if found is None:
        return "has an address whose host cannot be read"
    host = found[1].strip("[]")
    try:
        address = ip_address(host)
    except ValueError:
        return "names its host by a number" if _NUMBER.fullmatch(host) else ""
    mapped = getattr(address, "ipv4_mapped", None) or address
    unusable = mapped.is_link_local or mapped.is_unspecified or mapped.is_multicast
    return f"calls `{host}`, which is no address of a server" if unusable else ""


def _fed(graph: FlowGraph, name: str) -> set[str]:
    return {edge.input for edge in graph.all_into(name)}
