"""Make the selection for a context slot: automatically, or as a person answered.

Only the artifact ids of an answer are read. Each is looked up among the artifacts that the actor can see at that
moment, so scope, owner and type always come from the server. For an invalid answer `PickRefused` is returned: its
reason is shown, the person is asked again, and the run keeps waiting.
Source: docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.artifacts import ARTIFACT, ArtifactRef, PinnedContent
from contextos.contracts.envelopes.slots import (
    MAX_SLOT_BYTES,
    MAX_SLOT_REFS,
    AgentContextSlot,
    PickFault,
    PickRefused,
    Selected,
    SelectedRef,
    SelectionAct,
    SelectionOrigin,
    SlotBinding,
    SlotResolution,
    UserResponse,
    selection_id,
)
from contextos.contracts.ports.storage import Artifacts
from contextos.errors import IncoherentSelection, InvalidEnvelope, MalformedJson

MAX_NAMED: Final = 20
"""Largest number of artifacts that a refusal lists."""

_UNKNOWN_REF_DETAILS: Final[dict[PickFault, str]] = {
    "duplicate_ref": "the ref is picked twice; pick it once",
    "stale_ref": "the artifact has a new revision or classification; look at it and pick again",
    "foreign_ref": "the ref cannot be picked here, or no longer; pick from what is shown",
}


async def choose_autonomously(
    slot: AgentContextSlot, resolution: SlotResolution, origin: SelectionOrigin, *, at_us: int, artifacts: Artifacts
) -> SelectionAct | PickRefused:
    """Return the selection for a slot that needs no person: the first artifact in `override`, all up to `maxItems` in
    `accumulate`. Nothing is written.

    Refuses fewer artifacts than `minItems`, and more than a selection can pin.
    """
    refs = resolution.refs[: 1 if slot.resolution_mode == "override" else slot.max_items]
    return _too_few_refusal(slot, len(refs)) or await _selection(slot, refs, origin, at_us=at_us, artifacts=artifacts)


async def choose_interactively(
    slot: AgentContextSlot,
    resolution: SlotResolution,
    answer: bytes | str | Mapping[str, Any],
    origin: SelectionOrigin,
    *,
    at_us: int,
    artifacts: Artifacts,
) -> SelectionAct | PickRefused:
    """Return the selection that a person's answer makes. `resolution` must be current, because artifacts that were
    offered earlier can be gone. Nothing is written.

    An empty answer is valid, unless `minItems` requires more.
    """
    picked = check_pick(slot, resolution, answer)
    if isinstance(picked, PickRefused):
        return picked
    return await _selection(slot, picked, origin, at_us=at_us, artifacts=artifacts)


async def select_autonomously(
    slot: AgentContextSlot, resolution: SlotResolution, origin: SelectionOrigin, *, at_us: int, artifacts: Artifacts
) -> Selected | PickRefused:
    """Record the selection of `choose_autonomously`. A refusal is not recorded.

    Raises:
        RepeatedAct: the act key was used before for a different selection.
        InvalidInput: the origin is a governed run, which records its own selections.
    """
    act = await choose_autonomously(slot, resolution, origin, at_us=at_us, artifacts=artifacts)
    return act if isinstance(act, PickRefused) else await _record(act, resolution, artifacts)


async def select_interactively(
    slot: AgentContextSlot,
    resolution: SlotResolution,
    answer: bytes | str | Mapping[str, Any],
    origin: SelectionOrigin,
    *,
    at_us: int,
    artifacts: Artifacts,
) -> Selected | PickRefused:
    """Record the selection of `choose_interactively`. Raises as `select_autonomously`."""
    act = await choose_interactively(slot, resolution, answer, origin, at_us=at_us, artifacts=artifacts)
    return act if isinstance(act, PickRefused) else await _record(act, resolution, artifacts)


def check_pick(
    slot: AgentContextSlot, resolution: SlotResolution, answer: bytes | str | Mapping[str, Any]
) -> tuple[ArtifactRef, ...] | PickRefused:
    """Return the references that a person's answer selects, in the order of `resolution`, or why the answer is
    refused.
    """
    response = read_answer(slot, answer)
    if isinstance(response, PickRefused):
        return response
    return (
        _unknown_ref_refusal(resolution, response.selected_refs)
        or _count_refusal(slot, len(response.selected_refs))
        or _picked_in_order(resolution, response.selected_refs)
    )


def read_answer(slot: AgentContextSlot, answer: bytes | str | Mapping[str, Any]) -> UserResponse | PickRefused:
    """Parse an answer to this slot, or return why it is refused."""
    try:
        response = parse(UserResponse, answer if isinstance(answer, bytes | str) else dict(answer))
    except (MalformedJson, InvalidEnvelope) as refused:
        problem = refused.problems[0]
        return PickRefused(
            code="bad_envelope", detail=f"the answer is malformed: {problem.detail}", pointer=problem.pointer
        )
    if response.slot_id != slot.slot_id:
        detail = f"the answer is for a different slot than `{slot.slot_id}`"
        return PickRefused(code="slot_mismatch", detail=detail, pointer="/slotId")
    if response.resolution_mode != slot.resolution_mode:
        note = "" if "resolution_mode" in response.model_fields_set else ", and an answer without one is `accumulate`"
        detail = f"the slot's resolution mode is `{slot.resolution_mode}`{note}"
        return PickRefused(code="resolution_mode_mismatch", detail=detail, pointer="/resolutionMode")
    return response


def picks_same(response: UserResponse, selection: SelectionAct) -> bool:
    """Return whether an answer selects the same artifacts as a recorded selection, in any order."""
    return sorted(ref.triple for ref in response.selected_refs) == sorted(ref.triple for ref in selection.refs)


def _unknown_ref_refusal(resolution: SlotResolution, picked: Sequence[SelectedRef]) -> PickRefused | None:
    offered = {ref.triple for ref in resolution.refs}
    offered_ids = {ref.artifact_id for ref in resolution.refs}
    seen: set[tuple[str, str, str]] = set()
    faults: dict[PickFault, list[int]] = {}
    for index, ref in enumerate(picked):
        if ref.triple in seen:
            faults.setdefault("duplicate_ref", []).append(index)
        elif ref.triple not in offered:
            faults.setdefault("stale_ref" if ref.artifact_id in offered_ids else "foreign_ref", []).append(index)
        seen.add(ref.triple)
    for code, indexes in faults.items():
        detail = f"{_list_ids([picked[index].artifact_id for index in indexes])}: {_UNKNOWN_REF_DETAILS[code]}"
        return PickRefused(code=code, detail=detail, pointer=f"/selectedRefs/{indexes[0]}")
    return None


def _list_ids(ids: Sequence[str]) -> str:
    """List the artifact ids, each once. Text that is not an id is not repeated, because it comes from the answer."""
    quoted = [f"`{text}`" if ARTIFACT.fits(text) else "an invalid artifact id" for text in dict.fromkeys(ids)]
    rest = [f"{len(quoted) - MAX_NAMED} more"] if len(quoted) > MAX_NAMED else []
    return ", ".join([*quoted[:MAX_NAMED], *rest])


def _count_refusal(slot: AgentContextSlot, count: int) -> PickRefused | None:
    if slot.resolution_mode == "override" and count > 1:
        return PickRefused(
            code="override_multi_select", detail="the slot takes one artifact; pick one", pointer="/selectedRefs"
        )
    if slot.max_items is not None and count > slot.max_items:
        detail = f"the slot takes at most {slot.max_items}; pick fewer"
        return PickRefused(code="above_max_items", detail=detail, pointer="/selectedRefs")
    return _too_few_refusal(slot, count)


def _too_few_refusal(slot: AgentContextSlot, count: int) -> PickRefused | None:
    if count >= slot.min_items:
        return None
    detail = f"the slot needs at least {slot.min_items} artifacts, and {count} would be selected"
    return PickRefused(code="below_min_items", detail=detail, pointer="/selectedRefs")


async def _size_refusal(
    slot: AgentContextSlot, refs: Sequence[ArtifactRef], org_id: str, artifacts: Artifacts
) -> PickRefused | None:
    """Return why the references are too many or too large to pin, or None. No content is read."""
    remedy = (
        "pick fewer" if slot.selection_mode == "interactive" else "set a lower `maxItems` or accept fewer extensions"
    )
    limit = f"slot `{slot.slot_id}` takes at most {MAX_SLOT_REFS} artifacts of {MAX_SLOT_BYTES} bytes in total"
    if len(refs) > MAX_SLOT_REFS:
        detail = f"{limit}, and {len(refs)} are selected; {remedy}"
        return PickRefused(code="too_large", detail=detail, pointer="/selectedRefs")
    sizes = await artifacts.pinned_sizes(org_id, refs) if refs else ()
    for count, size_bytes in enumerate(accumulate(sizes), 1):
        if size_bytes > MAX_SLOT_BYTES:
            detail = f"{limit}, and the first {count} of {len(refs)} have {size_bytes} bytes; {remedy}"
            return PickRefused(code="too_large", detail=detail, pointer="/selectedRefs")
    return None


def _picked_in_order(resolution: SlotResolution, picked: Sequence[SelectedRef]) -> tuple[ArtifactRef, ...]:
    triples = {ref.triple for ref in picked}
    return tuple(ref for ref in resolution.refs if ref.triple in triples)


async def _selection(
    slot: AgentContextSlot, refs: tuple[ArtifactRef, ...], origin: SelectionOrigin, *, at_us: int, artifacts: Artifacts
) -> SelectionAct | PickRefused:
    if refusal := await _size_refusal(slot, refs, origin.org_id, artifacts):
        return refusal
    return SelectionAct(
        selection_id=selection_id(slot.slot_id, origin),
        origin=origin,
        slot_id=slot.slot_id,
        resolution_mode=slot.resolution_mode,
        selection_mode=slot.selection_mode,
        selected_by="user" if slot.selection_mode == "interactive" else "autonomous",
        refs=refs,
        selected_at_us=at_us,
    )


async def record_selection(act: SelectionAct, *, artifacts: Artifacts) -> bool | PickRefused:
    """Record a selection. Return True if it is new, False if the same act was recorded before.

    Returns `PickRefused` if an artifact that was picked has been archived, reclassified or hidden meanwhile.

    Raises:
        RepeatedAct: the act key was used before for a different selection.
        InvalidInput: the selection belongs to a governed run whose journal does not hold it.
    """
    try:
        return await artifacts.insert_selection(act)
    except IncoherentSelection as refused:
        # A picked artifact was archived, reclassified or hidden after the resolution.
        indexes = [int(problem.pointer.rpartition("/")[2]) for problem in refused.problems]
        ids = _list_ids([act.refs[index].artifact_id for index in indexes])
        detail = f"{ids}: {refused.problems[0].detail}; look and pick again"
        return PickRefused(code="selection_incoherent", detail=detail, pointer="/selectedRefs")


async def _record(act: SelectionAct, resolution: SlotResolution, artifacts: Artifacts) -> Selected | PickRefused:
    wrote = await record_selection(act, artifacts=artifacts)
    if isinstance(wrote, PickRefused):
        return wrote
    triples = {ref.triple for ref in act.refs}
    manifest = tuple(
        line for line, ref in zip(resolution.manifest, resolution.refs, strict=True) if ref.triple in triples
    )
    return Selected(act=act, manifest=manifest, wrote=wrote)


def selection_fits(selection: SelectionAct, slot: AgentContextSlot, origin: SelectionOrigin) -> bool:
    """Return whether a selection is of this slot, as it is declared, and of this origin."""
    declared = (selection_id(slot.slot_id, origin), slot.slot_id, slot.selection_mode, slot.resolution_mode)
    actual = (selection.selection_id, selection.slot_id, selection.selection_mode, selection.resolution_mode)
    return selection.origin == origin and actual == declared


def bind_selection(selected: Selected) -> SlotBinding:
    """Return a selection in the form in which an agent's node receives it: one item of `contextRefs`."""
    return SlotBinding(slotId=selected.act.slot_id, refs=selected.act.refs)


async def replay_selection(selection: SelectionAct, *, artifacts: Artifacts) -> Sequence[PinnedContent]:
    """Return the artifacts of a selection with exactly the content that they had when they were selected.

    Raises:
        NotFound: a revision was never recorded.
    """
    return await artifacts.pinned(selection.origin.org_id, selection.refs) if selection.refs else ()
