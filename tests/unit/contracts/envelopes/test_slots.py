"""What a slot is, and what of an answer is read."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.slots import AgentContextSlot, UserResponse
from contextos.errors import InvalidEnvelope
from tests.unit.contracts.seeds import example

TRIPLE = {"artifactId": "a", "representationRevisionId": "r", "semanticAssertionId": "s"}


def test_a_slot_without_the_optional_fields_asks_for_nothing_and_has_no_cap() -> None:
    bare = {name: value for name, value in example("context_slot").items() if not name.startswith(("m", "readable"))}
    slot = parse(AgentContextSlot, bare)
    assert (slot.min_items, slot.max_items, slot.readable_only) == (0, None, False)


@pytest.mark.parametrize(
    ("change", "place"),
    [({"minItems": 6}, "minItems"), ({"acceptedArtifactExtensions": ["a", "a"]}, "acceptedArtifactExtensions")],
)
def test_a_slot_that_contradicts_itself_is_read_but_never_sealed(change: dict[str, object], place: str) -> None:
    slot = parse(AgentContextSlot, example("context_slot") | change)
    with pytest.raises(ValidationError) as refused:
        slot.sealed()
    assert [error["loc"] for error in refused.value.errors()] == [(place,)]


def test_a_slot_accepts_a_hundred_extensions() -> None:
    most = {"acceptedArtifactExtensions": [f"@a/e{number}" for number in range(100)]}
    assert len(parse(AgentContextSlot, example("context_slot") | most).sealed().accepted_artifact_extensions) == 100


@pytest.mark.parametrize(
    "change",
    [
        {"slotId": "offering context"},
        {"slotId": "1st"},
        {"slotId": "a-b"},
        {"slot_id": "x"},
        {"minItems": -1},
        {"maxItems": 0},
        {"acceptedArtifactExtensions": []},
        {"acceptedArtifactExtensions": ["@A/B"]},
        {"acceptedArtifactExtensions": ["@a/b/c"]},
        {"selectionMode": "auto"},
        {"resolutionMode": None},
        {"acceptedArtifactExtensions": [f"@a/e{number}" for number in range(101)]},
    ],
)
def test_a_slot_of_another_shape_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidEnvelope):
        parse(AgentContextSlot, example("context_slot") | change)


def test_of_a_picked_ref_the_triple_is_read_and_nothing_else() -> None:
    claims = {"sourceScope": "project", "extension": "@evil/x", "ownerId": "me"}
    answer = {"slotId": "x", "resolutionMode": "override", "selectedRefs": [TRIPLE | claims]}
    (picked,) = parse(UserResponse, answer).selected_refs
    assert picked.triple == ("a", "r", "s")
    with pytest.raises(InvalidEnvelope):
        parse(UserResponse, answer | {"selectedRefs": [TRIPLE | {"act": 1}]})


def test_an_answer_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(InvalidEnvelope):
        parse(UserResponse, {"slotId": "x", "resolutionMode": "override", "selectedRefs": [], "act": 1})
