"""Lint of an agent's `package.json`: its name, its version and its dependency on the selection agent.

Source: docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.jcs import same_json
from contextos.contracts.encoding.pointer import pointer
from contextos.errors import Problem
from contextos.slots.lint.components import DocumentPath, cinatra, text_of
from contextos.slots.lint.oas import declared_slots
from contextos.slots.lint.selection_node import SELECTION_AGENT

DEPENDENCIES: Final[DocumentPath] = ("cinatra", "agentDependencies")

MAX_RANGE_CHARS: Final = 256

_NUMBER: Final = r"(?:0|[1-9][0-9]{0,14})"
_LABELS: Final = r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
_VERSION: Final = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER}){_LABELS}")
_PLACE: Final = rf"(?:[xX*]|{_NUMBER})"
_PARTIAL: Final = rf"v?{_PLACE}(?:\.{_PLACE}(?:\.{_PLACE}{_LABELS})?)?"
_SIMPLE: Final = rf"(?:[<>]=?|=|~>?|\^)? *{_PARTIAL}"
_RANGE: Final = re.compile(rf"(?:{_PARTIAL} +- +{_PARTIAL}|{_SIMPLE}(?: +{_SIMPLE})*)")


def lint_package(document: JsonValue, package: JsonValue) -> tuple[Problem, ...]:
    """Return the problems of an agent's `package.json`; empty if there are none. Never raises."""
    return tuple(_faults(document, package))


def is_version_range(text: str) -> bool:
    """Return whether a text is a range of versions as `package.json` has them (node-semver).

    >>> [is_version_range(text) for text in ("^1.0.0", ">=1.2 <2 || 3.x", "1.0.0 - 2.0.0", "latest", "^1.0.0 || next")]
    [True, True, True, False, False]
    """
    return len(text) <= MAX_RANGE_CHARS and all(_RANGE.fullmatch(one.strip(" ")) for one in text.split("||"))


def lint_reimport(
    document: JsonValue, package: JsonValue, earlier_document: JsonValue, earlier_package: JsonValue
) -> tuple[Problem, ...]:
    """Return the problems of importing an agent again over an earlier import; empty if there are none. Never raises.

    A package that was imported is skipped by an import under the same version, so what changed needs a higher one.
    """
    if same_json([document, package], [earlier_document, earlier_package]):
        return ()
    version, earlier = _version_of(package), _version_of(earlier_package)
    if version is None:
        detail = "the package has no version of three numbers, and an agent is imported again only under a higher one"
        return (Problem("/version", "version_not_raised", detail, 'write one, such as `"1.0.0"`'),)
    if earlier is not None and version <= earlier:
        stated, before = (text_of(cast(dict[str, JsonValue], one)["version"]) for one in (package, earlier_package))
        detail = f"the agent has changed, and its version is `{stated}` and the imported one `{before}`: it is skipped"
        remedy = f"raise `version` above `{before}`"
        return (Problem("/version", "version_not_raised", detail, remedy),)
    return ()


def _version_of(package: JsonValue) -> tuple[Any, ...] | None:
    """The version in an order of semantic versioning: a pre-release is before its release."""
    found = _VERSION.fullmatch(text_of(package.get("version"))) if isinstance(package, dict) else None
    if found is None:
        return None
    labels = [(not one.isdigit(), int(one) if one.isdigit() else 0, one) for one in (found[4] or "").split(".")]
    return (*map(int, found.groups()[:3]), found[4] is None, labels)


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
    stated = listed.get(SELECTION_AGENT)
    if declares and (stated is None or (isinstance(stated, str) and not stated.strip())):
        detail = f"the agent declares slots, and does not depend on `{SELECTION_AGENT}`"
        yield Problem(at, "missing_dependency", detail, f'add `"{SELECTION_AGENT}": "^1.0.0"`')
    elif declares and not is_version_range(text_of(stated)):
        detail = f"the version of `{SELECTION_AGENT}` is {_shown(stated)}, which is not a range of versions"
        yield Problem(at, "not_a_range", detail, f'write `"{SELECTION_AGENT}": "^1.0.0"`')
    if not declares and SELECTION_AGENT in listed:
        detail = f"the agent declares no slot, and depends on `{SELECTION_AGENT}`"
        yield Problem(at, "transitive_dependency", detail, "remove it; a child agent with slots has its own dependency")


def _shown(value: JsonValue) -> str:
    return f"`{value[:64]}`" if isinstance(value, str) else "no text"
