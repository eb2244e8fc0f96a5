"""The address of an API call of a selection: what is wrong with it, in words."""

from __future__ import annotations

from typing import Any

import pytest

from contextos_agentspec.addresses import address_fault
from contextos_agentspec.components import graph_of, root_of


def fault(url: Any, resolve: str = "https://a.example/api/context-resolve") -> str:
    flow = {
        "component_type": "Flow",
        "id": "flow",
        "nodes": [
            {"component_type": "ApiNode", "id": "resolve", "url": resolve},
            {"component_type": "ApiNode", "id": "call", "url": url},
        ],
    }
    root = root_of(flow)
    assert root is not None
    return address_fault(graph_of(root), "call")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://a.example/api/context-finalize", ""),
        ("https://b.example/api/context-finalize", "another server"),
        ("https://a.example/api/log", "something other"),
        ("https://a.example:8443/api/context-finalize", "another server"),
        ("https://u@a.example/api/context-finalize", "user info"),
        ("https:///api/context-finalize", "cannot be read"),
        ("http://169.254.1.1/api/context-finalize", "no address of a server"),
        ("http://1/api/context-finalize", "by a number"),
        ("https://a.example/{{slotId}}", "an input can change"),
        ("ftp:a", "no address that can be read"),
        (None, "something other"),
    ],
)
def test_an_address_is_judged(url: Any, said: str) -> None:
    found = fault(url)
    assert said in found
    assert bool(said) == bool(found)
