"""Declared slots are read from any document, an invalid one is left out, and a duplicate is never guessed."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.context.slots.oas import MAX_SLOTS, declared_slots, slot_of
from contextos.errors import InvalidInput
from contextos_agentspec.components import names_slots
from tests.slots import slot

ICP = slot().to_json()
NAME = ICP["slotId"]


def document(*slots: Any) -> dict[str, Any]:
    return {"component_type": "Flow", "metadata": {"cinatra": {"contextSlots": list(slots)}}}


@pytest.mark.parametrize("other", [None, [], "x", 7, {}, {"metadata": []}, {"metadata": {"cinatra": None}}])
def test_a_document_without_slots_declares_none(other: Any) -> None:
    assert declared_slots(other).slots == ()
    assert declared_slots(other).problems == ()
    assert not names_slots(other)


@pytest.mark.parametrize(
    ("slots", "code"),
    [((ICP, ICP), "duplicate_slot"), ((ICP,) * (MAX_SLOTS + 1), "too_many_slots"), (("x",), None), ((ICP, {}), None)],
)
def test_a_fault_is_listed_with_its_place(slots: Any, code: str | None) -> None:
    problems = declared_slots(document(*slots)).problems
    assert problems
    assert all(one.pointer.startswith("/metadata/cinatra/contextSlots") for one in problems)
    assert code is None or problems[0].code == code


def test_a_slot_is_found_by_its_id_unless_it_is_declared_twice_or_absent() -> None:
    assert slot_of(document(ICP), NAME).slot_id == NAME
    for asked, given in ((NAME, document(ICP, ICP)), ("none", document(ICP)), (NAME, document())):
        with pytest.raises(InvalidInput):
            slot_of(given, asked)


BAD = [
    ICP | {"slotId": "voice", "maxItems": None},
    ICP | {"slotId": "voice", "minItems": None},
    ICP | {"slotId": "voice", "readableOnly": None},
    ICP | {"slotId": "voice", "selectionMode": "automatic"},
    ICP | {"slotId": "voice", "acceptedArtifactExtensions": [], "more": 1},
    {"slotId": "voice"},
]


@pytest.mark.parametrize("bad", BAD)
def test_a_good_slot_beside_a_bad_one_is_kept_and_the_bad_one_says_why_it_is_not(bad: Any) -> None:
    for given in (document(ICP, bad), document(bad, ICP), document(bad, ICP, "x", {})):
        assert [one.slot_id for one, _ in declared_slots(given).slots] == [NAME]
        assert slot_of(given, NAME).slot_id == NAME
        with pytest.raises(InvalidInput) as refused:
            slot_of(given, "voice")
        assert all("slot `voice`" in one.detail for one in refused.value.problems)
        with pytest.raises(InvalidInput) as unknown:
            slot_of(given, "other")
        assert [one.code for one in unknown.value.problems] == ["unknown_slot"]


def test_a_document_whose_slots_have_no_name_says_what_is_wrong_with_them() -> None:
    with pytest.raises(InvalidInput) as refused:
        slot_of(document({}, "x"), NAME)
    assert "unknown_slot" not in {one.code for one in refused.value.problems}
