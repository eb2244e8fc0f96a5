"""Lint of an agent's `package.json`: its name and its dependency on the selection agent.

Source: docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.pointer import pointer
from contextos.errors import Problem
from contextos.slots.lint.components import DocumentPath, cinatra, text_of
from contextos.slots.lint.oas import declared_slots
from contextos.slots.lint.selection_node import SELECTION_AGENT

DEPENDENCIES: Final[DocumentPath] = ("cinatra", "agentDependencies")


def lint_package(document: JsonValue, package: JsonValue) -> tuple[Problem, ...]:
    """Return the problems of an agent's `package.json`; empty if there are none. Never raises."""
    return tuple(_faults(document, package))


def _faults(document: JsonValue, package: JsonValue) -> Iterator[Problem]:
    if not isinstance(package, dict):
        yield Problem("", "not_an_object", "the package is not a JSON object", "use the agent's `package.json`")
        return
    declared = declared_slots(document)
    declares = bool(declared.names or declared.problems)
    own, name = text_of(cinatra(document).get("packageName")) if declares else "", text_of(package.get("name"))
    if own and name and own != name:
        detail = f"the package is named `{name[:64]}`, and the document states `{own[:64]}`"
        yield Problem("/name", "package_name_differs", detail, "use the same name in both; the audit records it")
    inner = package.get("cinatra")
    listed = inner.get("agentDependencies", {}) if isinstance(inner, dict) else {}
    if not isinstance(listed, dict):
        yield Problem(
            pointer(DEPENDENCIES),
            "not_an_object",
            "`agentDependencies` is not an object",
            "write an object of names and version ranges",
        )
        return
    at = pointer((*DEPENDENCIES, SELECTION_AGENT))
    if declares and not text_of(listed.get(SELECTION_AGENT)).strip():
        detail = f"the agent declares slots, and does not depend on `{SELECTION_AGENT}`"
        yield Problem(at, "missing_dependency", detail, f'add `"{SELECTION_AGENT}": "^1.0.0"`')
    if not declares and SELECTION_AGENT in listed:
        detail = f"the agent declares no slot, and depends on `{SELECTION_AGENT}`"
        yield Problem(at, "transitive_dependency", detail, "remove it; a child agent with slots has its own dependency")
