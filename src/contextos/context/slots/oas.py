"""Read the slots that an Open Agent Spec document declares, and list the problems of the declarations.

Slots are in `metadata.cinatra.contextSlots` of the root component. A document without slots is fine, and so is a
document that is not an agent. An invalid slot is left out, and its problems are listed.
Source: docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pydantic import ValidationError

from contextos.contracts.encoding.codec import JsonValue, problems_of
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.slots import AgentContextSlot
from contextos.errors import InvalidInput, Problem

DocumentPath: TypeAlias = tuple[str | int, ...]
SLOTS: Final[DocumentPath] = ("metadata", "cinatra", "contextSlots")
MAX_SLOTS: Final = 64


@dataclass(frozen=True, slots=True)
class DeclaredSlots:
    """The valid context slots that a document declares, each with its path, and the problems of the invalid slots.

    `names` holds the ids of all slots that have an id, also of invalid slots.
    """

    slots: tuple[tuple[AgentContextSlot, DocumentPath], ...] = ()
    names: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()


def declared_slots(document: JsonValue, at: DocumentPath = ()) -> DeclaredSlots:
    """Return the context slots that a document, or its component at the path `at`, declares. Never raises."""
    slot_values = cinatra(document).get("contextSlots") if isinstance(document, dict) else None
    if slot_values is None:
        return DeclaredSlots()
    place = (*at, *SLOTS)
    if not isinstance(slot_values, list):
        return DeclaredSlots(
            problems=(Problem(pointer(place), "not_a_list", "`contextSlots` is not a list", "write a list"),)
        )
    if len(slot_values) > MAX_SLOTS:
        detail = f"the agent declares more than {MAX_SLOTS} slots"
        return DeclaredSlots(problems=(Problem(pointer(place), "too_many_slots", detail, "declare fewer"),))
    slots: list[tuple[AgentContextSlot, DocumentPath]] = []
    names: set[str] = set()
    problems: list[Problem] = []
    for index, slot_value in enumerate(slot_values):
        path = (*place, index)
        name = _text(slot_value.get("slotId")) if isinstance(slot_value, dict) else ""
        if name and name in names:
            detail = f"slot `{name[:64]}` is declared twice"
            problems.append(Problem(pointer((*path, "slotId")), "duplicate_slot", detail, "give each slot its own id"))
            continue
        names |= {name} if name else set()
        slot_problems = list(_slot_problems(slot_value, path))
        problems += slot_problems
        if not slot_problems:
            slots.append((AgentContextSlot.model_validate(slot_value), path))
    return DeclaredSlots(tuple(slots), frozenset(names), tuple(problems))


def slot_of(document: JsonValue, slot_id: str) -> AgentContextSlot:
    """Return the context slot with that id.

    Raises:
        InvalidInput: there is no such slot, there are two, or it is invalid.
    """
    declared = declared_slots(document)
    duplicates = [
        problem
        for problem in declared.problems
        if problem.code == "duplicate_slot" and f"`{slot_id[:64]}`" in problem.detail
    ]
    if duplicates:
        raise InvalidInput(*duplicates)
    for slot, _ in declared.slots:
        if slot.slot_id == slot_id:
            return slot
    if slot_id in declared.names or (declared.problems and not declared.names):
        slot_problems = [problem for problem in declared.problems if problem.detail.startswith(_prefix(slot_id))]
        raise InvalidInput(*(slot_problems or declared.problems))
    declared_ids = ", ".join(f"`{name[:64]}`" for name in sorted(declared.names)) or "none"
    detail = f"there is no slot `{slot_id[:64]}`; the agent declares {declared_ids}"
    raise InvalidInput(Problem(pointer(SLOTS), "unknown_slot", detail, "name one of them"))


def require_package(document: JsonValue, package: str) -> None:
    """Refuse a package that is not the document's own: the audit pins it. Raises `InvalidInput`."""
    stated = _text(cinatra(document).get("packageName")) if isinstance(document, dict) else ""
    if stated != package:
        detail = f"the package is `{package[:64]}`, and the document states {f'`{stated[:64]}`' if stated else 'none'}"
        place = pointer(("metadata", "cinatra", "packageName"))
        raise InvalidInput(Problem(place, "package_name_differs", detail, "name the package of the document"))


def cinatra(value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the object `metadata.cinatra` of a component or a package; empty if there is none."""
    metadata = value.get("metadata")
    inner = metadata.get("cinatra") if isinstance(metadata, dict) else None
    return inner if isinstance(inner, dict) else {}


def _slot_problems(value: JsonValue, path: DocumentPath) -> Iterator[Problem]:
    try:
        AgentContextSlot.model_validate(value).sealed()
    except ValidationError as error:
        prefix = _prefix(_text(value.get("slotId"))) if isinstance(value, dict) and value.get("slotId") else ""
        for problem in problems_of(error, value, AgentContextSlot):
            yield Problem(pointer(path) + problem.pointer, problem.code, prefix + problem.detail, problem.remedy)


def _prefix(slot_id: str) -> str:
    return f"slot `{slot_id[:64]}`: "


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
