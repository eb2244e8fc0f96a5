"""Lints the facts that a rule reads: each exists at the points where the rule is asked, with the type that it needs.

Source: docs/design/contracts.md, "Policy" (`facts`, enforcement points).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from contextos.contracts.encoding.display_escape import an
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import POINTS, AppliesTo
from contextos.contracts.facts import TRACED_ROOTS, Vocabulary, nearest_name
from contextos.errors import Problem
from contextos.trust.policy.conditions import FactPath
from contextos.trust.policy.operators import EQUALITIES, JsonPath, compatible, operands_of


def lint_facts(
    facts: Sequence[FactPath], condition: Any, applies: AppliesTo, vocabulary: Vocabulary, at: JsonPath
) -> Iterator[Problem]:
    """Yield a problem for each fact that does not exist, has another type, or is not known where the rule can be asked;
    and for each text that the compared fact never is. Where it can, a problem names the nearest fact or text.
    `at` is the path of the rule's `condition`.
    """
    known_at = set(POINTS)
    for fact in facts:
        fact_place = pointer(_reading_place(condition, fact.path, at))
        declared = vocabulary.find(fact.path, applies.capability)
        if declared is None:
            remedy = _remedy(fact.path, applies.capability, vocabulary)
            yield Problem(fact_place, "unknown_fact", f"there is no fact `{fact.path}`", remedy)
        elif not _fits_type(declared.type, fact.type):
            detail = f"`{fact.path}` is {an(str(declared.type))} and used as {fact.type}"
            yield Problem(fact_place, "type_mismatch", detail, f"compare it with {an(str(declared.type))}")
        elif applies.point is not None and applies.point not in declared.points:
            points = ", ".join(f"`{point}`" for point in declared.points)
            detail = f"`{fact.path}` is not known at `{applies.point}`"
            yield Problem(fact_place, "unknown_at_point", detail, f"drop `point`, or use one of {points}")
        elif not (known_at := known_at.intersection(declared.points)):
            detail = f"`{fact.path}` is never known together with the other facts, so the rule would never be asked"
            yield Problem(fact_place, "unknown_at_point", detail, "write a rule of its own about it")
            return
    for path, text, place in compared_texts(condition, at):
        values = vocabulary.values(path)
        if values and text not in values:
            nearest = nearest_name(text, values)
            remedy = f"write `{nearest}`" if nearest else f"use one of {', '.join(values)}"
            yield Problem(pointer(place), "no_such_value", f"`{path}` is never `{text[:80]}`", remedy)


def compared_texts(node: Any, at: JsonPath) -> Iterator[tuple[str, str, JsonPath]]:
    """Yield each text with which a condition compares a fact: the path of the fact, the text, and its place."""
    if isinstance(node, dict) and len(node) == 1:
        ((name, raw),) = node.items()
        operands = operands_of(raw)
        if (name in EQUALITIES or name == "in") and len(operands) == 2:
            for fact_index, text_index, place in ((0, 1, (*at, name, 1)), (1, 0, (*at, name, 0))):
                yield from _compared_texts(_var_path(operands[fact_index]), operands[text_index], place)
    if isinstance(node, dict):
        for name, child in node.items():
            yield from compared_texts(child, (*at, name))
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from compared_texts(child, (*at, index))


def _var_path(operand: Any) -> str | None:
    if not isinstance(operand, dict) or operand.keys() != {"var"}:
        return None
    path = next(iter(operands_of(operand["var"])), None)
    return path if isinstance(path, str) else None


def _compared_texts(path: str | None, compared: Any, at: JsonPath) -> Iterator[tuple[str, str, JsonPath]]:
    if path is None:
        return
    if isinstance(compared, str):
        yield path, compared, at
    elif isinstance(compared, list | tuple):
        yield from ((path, text, (*at, index)) for index, text in enumerate(compared) if isinstance(text, str))


def lint_scope(applies: AppliesTo, vocabulary: Vocabulary, at: JsonPath) -> Iterator[Problem]:
    """Yield the problem of a rule's `applies_to` (at the path `at`): an unknown environment."""
    if applies.environment is not None and applies.environment not in vocabulary.environments:
        nearest = nearest_name(applies.environment, vocabulary.environments)
        remedy = f"write `{nearest}`" if nearest else f"use one of {', '.join(vocabulary.environments)}"
        detail = f"there is no environment `{applies.environment[:80]}`, so the rule would never apply"
        yield Problem(pointer((*at, "environment")), "unknown_environment", detail, remedy)


def _remedy(path: str, capability: str | None, vocabulary: Vocabulary) -> str:
    arguments = vocabulary.arguments or {}
    root = path.partition(".")[0]
    if capability is not None and capability in arguments and root in ("args", *TRACED_ROOTS):
        tools = [f"`{tool}`" for tool in arguments if vocabulary.find(path, tool) is not None]
        if tools:
            return f"{' and '.join(tools[:4])} has it: say that the rule is about that tool alone"
        paths = [
            name for name in replace(vocabulary, arguments={capability: arguments[capability]}).paths() if "." in name
        ]
        nearest = nearest_name(
            path.partition(".")[2], [name.partition(".")[2] for name in paths if name.startswith(f"{root}.")]
        )
        arguments_listed = ", ".join(f"`{name}`" for name in paths if name.startswith("args."))
        return f"write `{root}.{nearest}`" if nearest else f"`{capability}` has {arguments_listed or 'no arguments'}"
    if path.partition(".")[0] == "history":
        known = vocabulary.history.get(path.partition(".")[2])
        if known is not None:
            return f"set `applies_to.capability` to `{known.capability}`, whose effects it counts"
        nearest = nearest_name(path, [f"history.{name}" for name in vocabulary.history])
        return f"write `{nearest}`" if nearest else "declare it in `history` of the bundle"
    if path.partition(".")[0] == "clock" and not vocabulary.hours:
        return "declare `business_hours` with a zone; a rule reads `clock.<their name>.open`, `.weekday` or `.hour`"
    nearest = vocabulary.nearest(path)
    return f"write `{nearest}`" if nearest else "see `contextos policies facts` for what a rule can read"


def _fits_type(declared: str | None, needed: str | None) -> bool:
    if declared is None or needed is None or compatible(declared, needed):
        return True
    return needed == "array" and declared.startswith("array")


def _reading_place(node: Any, path: str, at: JsonPath) -> JsonPath:
    """Return the place of the first operand that reads `path`, or the place of the condition."""
    return next(_reading_places(node, path, at), at)


def _reading_places(node: Any, path: str, at: JsonPath) -> Iterator[JsonPath]:
    if node == path:
        yield at
    elif isinstance(node, dict):
        for name, child in node.items():
            yield from _reading_places(child, path, (*at, name))
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from _reading_places(child, path, (*at, index))
