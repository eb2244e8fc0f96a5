"""Lint of the history facts that policy bundles declare: each must count something, and mean one thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from contextos.contracts.encoding.display_escape import an
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import HistoryFact, LeveledBundle
from contextos.contracts.facts import NO_SUCH, Vocabulary, property_type
from contextos.errors import Problem


def lint_history(
    bundles: Sequence[LeveledBundle], declared: Mapping[str, str], vocabulary: Vocabulary
) -> Iterator[Problem]:
    """Yield the problems of all declared history facts. `declared` maps capability ids to their approval modes."""
    seen: dict[str, HistoryFact] = {}
    for leveled in bundles:
        known = vocabulary if leveled.level == "pack" else vocabulary.above_the_pack()
        for name, fact in leveled.bundle.history.items():
            at = ("history", name)
            if seen.setdefault(name, fact) != fact:
                detail = f"another bundle declares `history.{name}` differently"
                yield Problem(pointer(at), "duplicate_history", detail, "choose another name")
            if "." in name or not name:
                yield Problem(pointer(at), "bad_name", f"`{name[:80]}` cannot be read by a rule", "leave out the dots")
            if declared.get(fact.capability) == "read_only":
                detail = f"`{fact.capability}` has no effects, and a history counts effects"
                yield Problem(
                    pointer((*at, "capability")), "history_of_a_read", detail, "name a capability that writes"
                )
            yield from _lint_arguments(fact, known, at)


def _lint_arguments(fact: HistoryFact, vocabulary: Vocabulary, at: tuple[str, ...]) -> Iterator[Problem]:
    schema = (vocabulary.arguments or {}).get(fact.capability)
    if schema is None:
        return
    for member, argument in (("of", fact.of), ("subject", fact.subject)):
        if argument is None:
            continue
        kind = property_type(schema, [argument])
        if kind is NO_SUCH:
            detail = f"`{fact.capability}` has no argument `{argument}`"
            yield Problem(pointer((*at, member)), "unknown_argument", detail, "name an argument of its schema")
        elif member == "of" and kind not in (None, "number"):
            detail = f"the argument `{argument}` is {an(kind)} and cannot be added up"
            yield Problem(pointer((*at, member)), "not_a_number", detail, "name an argument that is a number")
