"""The slots that an Open Agent Spec document declares, and everything that is wrong with the declaration.

Slots stand in `metadata.cinatra.contextSlots` of the root component. A document that declares none is fine; so is one
that is no agent at all. Nothing here raises: a slot that does not hold is left out and its faults are named.
Source: shared/spec/seeds/003, "Slot schema"; shared/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from contextos.contracts.encoding.codec import JsonValue, problems_of
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.slots import AgentContextSlot
from contextos.errors import InvalidInput, Problem
from contextos.slots.lint.components import DocumentPath, cinatra, items, text_of

SLOTS: Final[DocumentPath] = ("metadata", "cinatra", "contextSlots")
MAX_SLOTS: Final = 64


@dataclass(frozen=True, slots=True)
class Declared:
    """The slots that hold, each with its place, and what is wrong with the others.

    `names` are the ids of all that name themselves, also of those that do not hold.
    """

    slots: tuple[tuple[AgentContextSlot, DocumentPath], ...] = ()
    names: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()


def declared_slots(document: JsonValue, at: DocumentPath = ()) -> Declared:
    """What a document, or the component of it that stands at `at`, declares. Never raises."""
    listed = cinatra(document).get("contextSlots") if isinstance(document, dict) else None
    if listed is None:
        return Declared()
    place = (*at, *SLOTS)
    if not isinstance(listed, list):
        return Declared(problems=(Problem(pointer(place), "not_a_list", "slots are a list", "put it in brackets"),))
    if len(listed) > MAX_SLOTS:
        detail = f"an agent declares at most {MAX_SLOTS} slots"
        return Declared(problems=(Problem(pointer(place), "too_many_slots", detail, "declare fewer"),))
    slots: list[tuple[AgentContextSlot, DocumentPath]] = []
    names: set[str] = set()
    problems: list[Problem] = []
    for index, one in enumerate(listed):
        here = (*place, index)
        name = text_of(one.get("slotId")) if isinstance(one, dict) else ""
        if name and name in names:
            detail = f"slot `{name[:64]}` is declared twice"
            problems.append(Problem(pointer((*here, "slotId")), "duplicate_slot", detail, "give each an id of its own"))
            continue
        names |= {name} if name else set()
        found = list(_faults(one, here))
        problems += found
        if not found:
            slots.append((AgentContextSlot.model_validate(one), here))
    return Declared(tuple(slots), frozenset(names), tuple(problems))


def names_slots(document: JsonValue) -> bool:
    """Whether a component declares a slot that names itself, well or badly."""
    listed = cinatra(document).get("contextSlots") if isinstance(document, dict) else None
    return any(isinstance(one, dict) and text_of(one.get("slotId")) for one in items(listed)[: MAX_SLOTS + 1])


def slot_of(document: JsonValue, slot_id: str) -> AgentContextSlot:
    """The one slot of that id.

    Raises:
        InvalidInput: there is none, there are two, or it is not what a slot is.
    """
    declared = declared_slots(document)
    named = [one for one in declared.problems if one.code == "duplicate_slot" and f"`{slot_id[:64]}`" in one.detail]
    if named:
        raise InvalidInput(*named)
    for slot, _ in declared.slots:
        if slot.slot_id == slot_id:
            return slot
    if declared.problems:
        raise InvalidInput(*declared.problems)
    listed = ", ".join(f"`{name}`" for name in sorted(declared.names)) or "none"
    detail = f"there is no slot `{slot_id[:64]}`; the agent declares {listed}"
    raise InvalidInput(Problem(pointer(SLOTS), "unknown_slot", detail, "name one of them"))


def _faults(value: JsonValue, at: DocumentPath) -> Iterator[Problem]:
    try:
        AgentContextSlot.model_validate(value).sealed()
    except ValidationError as error:
        named = (
            f"slot `{text_of(value.get('slotId'))[:64]}`: " if isinstance(value, dict) and value.get("slotId") else ""
        )
        for one in problems_of(error, value):
            yield Problem(pointer(at) + one.pointer, one.code, named + one.detail, one.remedy)
