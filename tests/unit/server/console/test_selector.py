"""The view of the selector: candidates by scope, the answer that a choice makes, and why it is refused."""

from __future__ import annotations

from typing import Any

from contextos.contracts.envelopes.artifacts import ArtifactRef
from contextos.contracts.envelopes.slots import AgentContextSlot, ManifestLine, SlotResolution
from contextos.server.console.selector import SelectionView, selection_view

SCOPED = (("w", "workspace"), ("o2", "organization"), ("o1", "organization"), ("p", "project"), ("u", "user"))


def ref(artifact: str, scope: str, assertion: str = "asr_" + "a" * 16) -> ArtifactRef:
    fields = {
        "artifactId": artifact,
        "representationRevisionId": "rev_" + "0" * 16,
        "semanticAssertionId": assertion,
        "extension": "@acme/voice",
        "sourceScope": scope,
        "ownerId": "acme",
    }
    return ArtifactRef.model_validate(fields)


def view(refs: list[ArtifactRef], *chosen: str, **changes: Any) -> SelectionView:
    slot = {
        "slotId": "voice",
        "acceptedArtifactExtensions": ["@acme/voice"],
        "selectionMode": "interactive",
        "resolutionMode": "accumulate",
        **changes,
    }
    lines = [
        ManifestLine(
            ref=f"artifact:{one.artifact_id}#{one.representation_revision_id}",
            extension=one.extension,
            sourceScope=one.source_scope,
            title=one.artifact_id,
        )
        for one in refs
    ]
    offer = SlotResolution(slotId="voice", resolutionMode=slot["resolutionMode"], refs=refs, manifest=lines)
    return selection_view(AgentContextSlot.model_validate(slot), offer, chosen)


def value(one: ArtifactRef) -> str:
    return " ".join(one.triple)


def test_groups_go_from_narrow_to_broad_and_keep_the_order_within() -> None:
    shown = view([ref(name, scope) for name, scope in SCOPED])
    assert [(scope, [one.title for one in group]) for scope, group in shown.groups] == [
        ("project", ["p"]),
        ("user", ["u"]),
        ("organization", ["o2", "o1"]),
        ("workspace", ["w"]),
    ]


def test_one_artifact_of_two_classifications_is_two_candidates() -> None:
    first, second = ref("a", "user"), ref("a", "user", "asr_" + "b" * 16)
    shown = view([first, second], value(second))
    [(_, group)] = shown.groups
    assert [one.place for one in group] == [0, 1]


def test_a_choice_makes_the_answer_and_a_place_for_each() -> None:
    refs = [ref("a", "user"), ref("b", "team"), ref("c", "team")]
    shown = view(refs, value(refs[2]), value(refs[0]))
    assert [[one.place for one in group] for _, group in shown.groups] == [[1], [0, 2]]
    assert [one["artifactId"] for one in shown.answer["selectedRefs"]] == ["c", "a"]
    assert (shown.answer["slotId"], shown.answer["resolutionMode"], shown.refusal) == ("voice", "accumulate", "")


def test_an_empty_answer_is_an_answer_unless_there_is_a_floor() -> None:
    assert (view([]).answer["selectedRefs"], view([]).refusal) == ([], "")
    assert "needs at least 1" in view([], minItems=1).refusal


def test_the_cap_is_that_of_the_slot_or_of_what_a_selection_pins() -> None:
    assert [view([], **of).most for of in ({}, {"maxItems": 3}, {"maxItems": 999}, {"resolutionMode": "override"})] == [
        256,
        3,
        256,
        1,
    ]
    refs = [ref("a", "user"), ref("b", "user")]
    assert "at most 1" in view(refs, *map(value, refs), maxItems=1).refusal
    assert "takes one artifact" in view(refs, *map(value, refs), resolutionMode="override").refusal


def test_what_is_not_offered_is_refused_by_name() -> None:
    gone = ref("gone", "user")
    assert "`gone`: the ref cannot be picked here" in view([ref("a", "user")], value(gone)).refusal
    assert view([], "x", "a b", "a b c d").answer["selectedRefs"] == []
