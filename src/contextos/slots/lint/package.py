"""The part of the lint that looks at the `package.json` of an agent: what it depends on, and under which name it acts.

Source: shared/spec/seeds/003, "Explicit context-selection-agent invocation", 1, and "Invocation locality".
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
    """What is wrong with the package that goes with an agent's document; empty if nothing is. Never raises."""
    return tuple(_faults(document, package))


def _faults(document: JsonValue, package: JsonValue) -> Iterator[Problem]:
    if not isinstance(package, dict):
        yield Problem("", "not_an_object", "a package is a JSON object", "name the agent's `package.json`")
        return
    declared = declared_slots(document)
    declares = bool(declared.names or declared.problems)
    own, name = text_of(cinatra(document).get("packageName")) if declares else "", text_of(package.get("name"))
    if own and name and own != name:
        detail = f"the package is `{name[:64]}` and the document says that it is `{own[:64]}`"
        yield Problem("/name", "package_name_differs", detail, "give both one name; it is what audit pins")
    inner = package.get("cinatra")
    listed = inner.get("agentDependencies", {}) if isinstance(inner, dict) else {}
    if not isinstance(listed, dict):
        yield Problem(pointer(DEPENDENCIES), "not_an_object", "dependencies map names to ranges", "write an object")
        return
    at = pointer((*DEPENDENCIES, SELECTION_AGENT))
    if declares and not text_of(listed.get(SELECTION_AGENT)).strip():
        detail = f"the agent declares slots and does not depend on `{SELECTION_AGENT}`"
        yield Problem(at, "missing_dependency", detail, f'add `"{SELECTION_AGENT}": "^1.0.0"`')
    if not declares and SELECTION_AGENT in listed:
        detail = f"the agent declares no slot of its own and depends on `{SELECTION_AGENT}`"
        yield Problem(at, "transitive_dependency", detail, "remove it; a child that has slots depends on it itself")
