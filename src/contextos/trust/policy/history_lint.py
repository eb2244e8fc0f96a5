"""Lints the history facts and business hours that policy bundles declare: each must mean one thing, a history must
count something, and hours must name a time zone that exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from zoneinfo import available_timezones

from contextos.contracts.encoding.display_escape import an
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import BusinessHours, CountedTool, HistoryFact, LeveledBundle
from contextos.contracts.facts import NO_SUCH, Vocabulary, nearest_name, property_type
from contextos.errors import Problem
from contextos.trust.policy.conditions import analyse_condition

AMBIENT_ZONES = frozenset({"localtime", "Factory"})
"""Names of time zones that mean another zone on another machine."""


def lint_history(
    bundles: Sequence[LeveledBundle], declared: Mapping[str, str], vocabulary: Vocabulary
) -> Iterator[Problem]:
    """Yield the problems of all declared history facts. `declared` maps capability ids to their approval modes."""
    seen: dict[str, HistoryFact] = {}
    read_facts = {
        (rule.applies_to.capability, fact.path)
        for leveled in bundles
        if any(fact.also for fact in leveled.bundle.history.values())
        for rule in leveled.bundle.policy_dsl.rules
        for fact in analyse_condition(rule.condition, rule.facts).facts
    }
    for leveled in bundles:
        level_vocabulary = vocabulary if leveled.level == "pack" else vocabulary.above_the_pack()
        for name, fact in leveled.bundle.history.items():
            at = ("history", name)
            if seen.setdefault(name, fact) != fact:
                detail = f"another bundle declares `history.{name}` differently"
                yield Problem(pointer(at), "duplicate_history", detail, "choose another name")
            if "." in name or not name:
                yield Problem(pointer(at), "bad_name", f"`{name[:80]}` cannot be read by a rule", "leave out the dots")
            for tool, counted in fact.counted().items():
                is_own = tool == fact.capability
                if declared.get(tool) == "read_only":
                    detail = f"`{tool}` has no effects and is not declared `network`, so a history counts nothing of it"
                    place = pointer((*at, "capability") if is_own else (*at, "also", tool))
                    yield Problem(
                        place,
                        "history_of_a_read",
                        detail,
                        "name a capability that writes, or a read that is declared `network`",
                    )
                if fact.also and (tool, f"history.{name}") not in read_facts:
                    detail = f"no rule about `{tool}` reads `history.{name}`, so its calls are counted and not limited"
                    remedy = f"write the rule for `{tool}` too, with this id in `applies_to`"
                    yield Problem(pointer(at), "counted_and_not_limited", detail, remedy)
                yield from _lint_arguments(tool, counted, level_vocabulary, at if is_own else (*at, "also", tool))


def lint_hours(bundles: Sequence[LeveledBundle]) -> Iterator[Problem]:
    """Yield the problems of all declared business hours."""
    seen: dict[str, BusinessHours] = {}
    # Listing the zones takes long, and most packs declare no hours.
    zones = (
        available_timezones() - AMBIENT_ZONES if any(item.bundle.business_hours for item in bundles) else frozenset()
    )
    for leveled in bundles:
        for name, hours in leveled.bundle.business_hours.items():
            at = ("business_hours", name)
            if seen.setdefault(name, hours) != hours:
                detail = f"another bundle declares the business hours `{name}` differently"
                yield Problem(pointer(at), "duplicate_hours", detail, "choose another name")
            if hours.zone not in zones:
                nearest = nearest_name(hours.zone, zones)
                remedy = f"write `{nearest}`" if nearest else "write an IANA name such as `Europe/Berlin` or `Etc/UTC`"
                yield Problem(pointer((*at, "zone")), "unknown_zone", f"there is no time zone `{hours.zone}`", remedy)


def _lint_arguments(tool: str, counted: CountedTool, vocabulary: Vocabulary, at: tuple[str, ...]) -> Iterator[Problem]:
    schema = (vocabulary.arguments or {}).get(tool)
    if schema is None:
        return
    for member, argument in (("of", counted.of), ("subject", counted.subject)):
        if argument is None:
            continue
        kind = property_type(schema, [argument])
        if kind is NO_SUCH:
            detail = f"`{tool}` has no argument `{argument}`"
            yield Problem(pointer((*at, member)), "unknown_argument", detail, "name an argument of its schema")
        elif member == "of" and kind not in (None, "number"):
            detail = f"the argument `{argument}` is {an(kind)} and cannot be added up"
            yield Problem(pointer((*at, member)), "not_a_number", detail, "name an argument that is a number")
