"""Lint of an agent's `package.json`: its name, its version and its dependency on the selection agent.

Source: docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any, Final, cast

from contextos.context.slots.oas import DocumentPath, cinatra, declared_slots
from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.jcs import same_json
from contextos.contracts.encoding.pointer import pointer
from contextos.errors import Problem
from contextos_agentspec.components import text_of
from contextos_agentspec.selection_node import SELECTION_AGENT

DEPENDENCIES: Final[DocumentPath] = ("cinatra", "agentDependencies")
EDGES: Final[DocumentPath] = ("cinatra", "dependencies")
EDGE: Final[Mapping[str, str]] = {"edgeType": "runtime", "requirement": "required"}

MAX_RANGE_CHARS: Final = 256

_NUMBER: Final = r"(?:0|[1-9][0-9]{0,14})"
_LABELS: Final = r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
_VERSION: Final = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER}){_LABELS}")
_PLACE: Final = rf"(?:[xX*]|{_NUMBER})"
_PARTIAL: Final = rf"v?{_PLACE}(?:\.{_PLACE}(?:\.{_PLACE}{_LABELS})?)?"
_SIMPLE: Final = rf"(?:[<>]=?|=|~>?|\^)? *{_PARTIAL}"
_RANGE: Final = re.compile(rf"(?:{_PARTIAL} +- +{_PARTIAL}|{_SIMPLE}(?: +{_SIMPLE})*)")
_BOUND: Final = re.compile(rf"([<>]=?|=|~>?|\^)? *v?({_PLACE})(?:\.({_PLACE})(?:\.({_PLACE}){_LABELS})?)?")


def lint_package(document: JsonValue, package: JsonValue) -> tuple[Problem, ...]:
    """Return the problems of an agent's `package.json`; empty if there are none. Never raises."""
    return tuple(_faults(document, package))


def is_version_range(text: str) -> bool:
    """Return whether a text is a range of versions as `package.json` has them (node-semver).

    >>> [is_version_range(text) for text in ("^1.0.0", ">=1.2 <2 || 3.x", "1.0.0 - 2.0.0", "latest", "^1.0.0 || next")]
    [True, True, True, False, False]
    """
    return len(text) <= MAX_RANGE_CHARS and all(_RANGE.fullmatch(one.strip(" ")) for one in text.split("||"))


def _is_satisfiable(text: str) -> bool:
    """Return whether some version is in a range of versions, by the rules of node-semver.

    >>> [_is_satisfiable(text) for text in (">=2 <1", ">1.0.0 <1.0.1", "<0", ">=2 <1 || 3", ">=1.0.0-rc.1 <1.0.0")]
    [False, False, False, True, True]
    """
    return any(_has_version(one) for one in text.split("||"))


def _has_version(text: str) -> bool:
    """Whether some version is within all bounds of one alternative. `A - B` is `>=A <=B`."""
    if " - " in text:
        first, _, last = text.partition(" - ")
        text = f">={first.strip()} <={last.strip()}"
    bounds = list(_BOUND.finditer(text))
    spans = [_span(one) for one in bounds]
    low, high = max(low for low, _ in spans), min(high for _, high in spans)
    # Without labels in the range a pre-release is outside of it, so the next release decides.
    release = (low[0], low[1], low[2] + (len(low) > 4), 1)
    return release < high or (any(one[5] for one in bounds) and low < high)


def _span(bound: re.Match[str]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first version within a bound and the first beyond it: three numbers, 1 for a release, labels, 1 for after."""
    sign, numbers = bound[1] or "=", [int(one) for one in takewhile(str.isdigit, filter(None, bound.group(2, 3, 4)))]
    first, beyond = (0, 0, 0, 0), (10**16,)
    if not numbers:
        return (first, first) if sign in ("<", ">") else (first, beyond)
    stated = (*numbers, 0, 0)[:3]
    exact = (*stated, 0, _labels(bound[5])) if bound[5] else (*stated, 1)

    def raised(place: int) -> tuple[Any, ...]:
        return (*(*stated[:place], stated[place] + 1, 0, 0)[:3], 0)

    after = (*exact, 1) if len(numbers) == 3 else raised(len(numbers) - 1)
    if sign == "^":
        return exact, raised(next((at for at, one in enumerate(numbers) if one), len(numbers) - 1))
    if sign[0] == "~":
        return exact, raised(min(1, len(numbers) - 1))
    return {
        "=": (exact, after),
        ">=": (exact, beyond),
        ">": (after, beyond),
        "<": (first, exact),
        "<=": (first, after),
    }[sign]


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
    return (*map(int, found.groups()[:3]), found[4] is None, _labels(found[4] or ""))


def _labels(text: str) -> list[tuple[bool, int, str]]:
    return [(not one.isdigit(), int(one) if one.isdigit() else 0, one) for one in text.split(".")]


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
    found = _stated(listed, inner.get("dependencies", []) if isinstance(inner, dict) else [])
    yield from (one for one in found if isinstance(one, Problem))
    stated = [one for one in found if not isinstance(one, Problem)]
    for path, value in stated or ([((*DEPENDENCIES, SELECTION_AGENT), None)] if declares and not found else []):
        at, remedy = pointer(path), f'write `"{path[-1]}": "^1.0.0"`'
        if not declares:
            detail = f"the agent declares no slot, and depends on `{SELECTION_AGENT}`"
            remedy = "remove it; a child agent with slots has its own dependency"
            yield Problem(at, "transitive_dependency", detail, remedy)
        elif value is None or not str(value).strip():
            detail = f"the agent declares slots, and depends on no version of `{SELECTION_AGENT}`"
            yield Problem(at, "missing_dependency", detail, remedy)
        elif not is_version_range(text_of(value)):
            detail = f"the version of `{SELECTION_AGENT}` is {_shown(value)}, which is not a range of versions"
            yield Problem(at, "not_a_range", detail, remedy)
        elif not _is_satisfiable(text_of(value)):
            detail = f"no version of `{SELECTION_AGENT}` is in the range {_shown(value)}"
            yield Problem(at, "empty_range", detail, remedy)


def _stated(listed: Mapping[str, JsonValue], edges: JsonValue) -> list[Problem | tuple[DocumentPath, JsonValue]]:
    """Where a package states a version of the selection agent, with what it states: as a name of `agentDependencies`
    or as an edge of `dependencies`. A `Problem` for what can be neither.
    """
    found: list[Problem | tuple[DocumentPath, JsonValue]] = []
    if SELECTION_AGENT in listed:
        found.append(((*DEPENDENCIES, SELECTION_AGENT), listed[SELECTION_AGENT]))
    if not isinstance(edges, list):
        return [*found, Problem(pointer(EDGES), "not_a_list", "`dependencies` is not a list", "write a list of edges")]
    for at, edge in enumerate(edges):
        name = text_of(edge.get("packageName")) if isinstance(edge, dict) else ""
        if not isinstance(edge, dict) or not name:
            detail = "it names no package, so it can be the one of the selection agent"
            found.append(Problem(pointer((*EDGES, at)), "wrong_edge", detail, "write its `packageName`"))
        elif name == SELECTION_AGENT:
            for member, right in EDGE.items():
                if edge.get(member) != right:
                    detail, remedy = f"the `{member}` of `{name}` is not `{right}`", f'write `"{member}": "{right}"`'
                    found.append(Problem(pointer((*EDGES, at, member)), "wrong_edge", detail, remedy))
            limit = edge.get("versionConstraint")
            limit = limit if isinstance(limit, dict) else {}
            part = {"exact": "version", "semver-range": "range"}.get(text_of(limit.get("kind")), "kind")
            path = (*EDGES, at, "versionConstraint", part)
            if part == "range" or (part == "version" and _VERSION.fullmatch(text_of(limit.get(part)))):
                found.append((path, limit.get(part)))
            else:
                detail = f"the `versionConstraint` of `{name}` is neither a range nor an exact version"
                remedy = 'write `{"kind": "semver-range", "range": "^1.0.0"}`'
                found.append(Problem(pointer(path), "wrong_edge", detail, remedy))
    return found


def _shown(value: JsonValue) -> str:
    return f"`{value[:64]}`" if isinstance(value, str) else "no text"
