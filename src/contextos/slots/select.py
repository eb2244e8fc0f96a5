"""Selection: nobody picks (autonomous), or a person does (interactive); either way the act is recorded before use.

Of an answer the triples are read and nothing else. Each is looked up among what the actor may see at that moment, so
scope, owner and extension are always the server's own. A pick that does not count is a value: the reason is shown, the
person is asked again, and the run goes on waiting.
Source: shared/spec/seeds/003, "ContextSelector HITL renderer", "run_context_selections audit table".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
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
)
from contextos.contracts.ports.storage import Artifacts
from contextos.errors import IncoherentSelection, InvalidEnvelope, MalformedJson

MAX_NAMED: Final = 20
"""As many artifacts as a refusal names."""

_UNKNOWN: Final[dict[PickFault, str]] = {
    "duplicate_ref": "the ref is picked twice; pick it once",
    "stale_ref": "the artifact has another revision or classification now; look at it and pick again",
    "foreign_ref": "the ref is not, or not any more, among what may be picked here; pick from what is shown",
}


async def select_autonomously(
    slot: AgentContextSlot, resolution: SlotResolution, origin: SelectionOrigin, *, at_us: int, artifacts: Artifacts
) -> Selected | PickRefused:
    """Take what was resolved: the first of the narrowest scope in `override`, all in `accumulate`.

    Refuses fewer than `minItems`, and more than a selection may pin; then nothing is recorded.

    Raises:
        RepeatedAct: the act key was used before for another pick.
    """
    taken = resolution.refs[: 1 if slot.resolution_mode == "override" else slot.max_items]
    if too_few := _too_few(slot, len(taken)):
        return too_few
    return await _record(slot, resolution, taken, origin, at_us=at_us, artifacts=artifacts)


async def select_interactively(
    slot: AgentContextSlot,
    resolution: SlotResolution,
    answer: bytes | str | Mapping[str, Any],
    origin: SelectionOrigin,
    *,
    at_us: int,
    artifacts: Artifacts,
) -> Selected | PickRefused:
    """Take a person's pick. `resolution` is made anew for the answer: what was offered may not be there any more.

    An answer of nothing is an answer and is recorded, unless `minItems` asks for more.

    Raises:
        RepeatedAct: the act key was used before for another pick.
    """
    picked = check_pick(slot, resolution, answer)
    if isinstance(picked, PickRefused):
        return picked
    return await _record(slot, resolution, picked, origin, at_us=at_us, artifacts=artifacts)


def check_pick(
    slot: AgentContextSlot, resolution: SlotResolution, answer: bytes | str | Mapping[str, Any]
) -> tuple[ArtifactRef, ...] | PickRefused:
    """The refs that an answer picks, as the server knows them, in the order of the resolution; or why it counts not."""
    told = read_answer(slot, answer)
    if isinstance(told, PickRefused):
        return told
    return (
        _unknown(resolution, told.selected_refs)
        or _wrong_number(slot, len(told.selected_refs))
        or _in_order(resolution, told.selected_refs)
    )


def read_answer(slot: AgentContextSlot, answer: bytes | str | Mapping[str, Any]) -> UserResponse | PickRefused:
    """The envelope of an answer for this slot; or why it is none."""
    try:
        told = parse(UserResponse, answer if isinstance(answer, bytes | str) else dict(answer))
    except (MalformedJson, InvalidEnvelope) as refused:
        first = refused.problems[0]
        return PickRefused(code="bad_envelope", detail=f"this is no answer: {first.detail}", pointer=first.pointer)
    if told.slot_id != slot.slot_id:
        detail = f"the answer is for another slot than `{slot.slot_id}`"
        return PickRefused(code="slot_mismatch", detail=detail, pointer="/slotId")
    if told.resolution_mode != slot.resolution_mode:
        detail = f"the slot resolves by `{slot.resolution_mode}`"
        return PickRefused(code="resolution_mode_mismatch", detail=detail, pointer="/resolutionMode")
    return told


def picks_as(told: UserResponse, act: SelectionAct) -> bool:
    """Whether an answer picks what an act pinned, in whatever order."""
    return sorted(ref.triple for ref in told.selected_refs) == sorted(ref.triple for ref in act.refs)


def _unknown(resolution: SlotResolution, picked: Sequence[SelectedRef]) -> PickRefused | None:
    offered = {ref.triple for ref in resolution.refs}
    artifacts = {ref.artifact_id for ref in resolution.refs}
    seen: set[tuple[str, str, str]] = set()
    found: dict[PickFault, list[int]] = {}
    for at, ref in enumerate(picked):
        if ref.triple in seen:
            found.setdefault("duplicate_ref", []).append(at)
        elif ref.triple not in offered:
            found.setdefault("stale_ref" if ref.artifact_id in artifacts else "foreign_ref", []).append(at)
        seen.add(ref.triple)
    for code, places in found.items():
        detail = f"{_named([picked[at].artifact_id for at in places])}: {_UNKNOWN[code]}"
        return PickRefused(code=code, detail=detail, pointer=f"/selectedRefs/{places[0]}")
    return None


def _named(artifacts: Sequence[str]) -> str:
    """The artifacts that are meant, each once; what is no id is text of the answer and is not repeated."""
    told = [f"`{name}`" if ARTIFACT.fits(name) else "what is no artifact id" for name in dict.fromkeys(artifacts)]
    more = [f"{len(told) - MAX_NAMED} more"] if len(told) > MAX_NAMED else []
    return ", ".join([*told[:MAX_NAMED], *more])


def _wrong_number(slot: AgentContextSlot, count: int) -> PickRefused | None:
    if slot.resolution_mode == "override" and count > 1:
        return PickRefused(code="override_multi_select", detail="the slot takes one; pick one", pointer="/selectedRefs")
    if slot.max_items is not None and count > slot.max_items:
        detail = f"the slot takes at most {slot.max_items}; pick fewer"
        return PickRefused(code="above_max_items", detail=detail, pointer="/selectedRefs")
    return _too_few(slot, count)


def _too_few(slot: AgentContextSlot, count: int) -> PickRefused | None:
    if count >= slot.min_items:
        return None
    detail = f"the slot needs at least {slot.min_items} and {count} would be taken"
    return PickRefused(code="below_min_items", detail=detail, pointer="/selectedRefs")


async def _too_much(
    slot: AgentContextSlot, refs: Sequence[ArtifactRef], org_id: str, artifacts: Artifacts
) -> PickRefused | None:
    """Why so much is not pinned. Content is read one by one and no further than the bound."""
    mend = "pick fewer" if slot.selection_mode == "interactive" else "set a lower `maxItems` or accept fewer extensions"
    most = f"slot `{slot.slot_id}` takes at most {MAX_SLOT_REFS} artifacts of {MAX_SLOT_BYTES} bytes"
    if len(refs) > MAX_SLOT_REFS:
        detail = f"{most}, and these are {len(refs)}; {mend}"
        return PickRefused(code="too_large", detail=detail, pointer="/selectedRefs")
    size_bytes = 0
    for count, ref in enumerate(refs, 1):
        (pinned,) = await artifacts.pinned(org_id, [ref])
        size_bytes += pinned.size_bytes
        if size_bytes > MAX_SLOT_BYTES:
            detail = f"{most}, and the first {count} of these {len(refs)} come to {size_bytes}; {mend}"
            return PickRefused(code="too_large", detail=detail, pointer="/selectedRefs")
    return None


def _in_order(resolution: SlotResolution, picked: Sequence[SelectedRef]) -> tuple[ArtifactRef, ...]:
    triples = {ref.triple for ref in picked}
    return tuple(ref for ref in resolution.refs if ref.triple in triples)


async def _record(
    slot: AgentContextSlot,
    resolution: SlotResolution,
    refs: tuple[ArtifactRef, ...],
    origin: SelectionOrigin,
    *,
    at_us: int,
    artifacts: Artifacts,
) -> Selected | PickRefused:
    if too_much := await _too_much(slot, refs, origin.org_id, artifacts):
        return too_much
    act = SelectionAct(
        selection_id=selection_id(slot.slot_id, origin),
        origin=origin,
        slot_id=slot.slot_id,
        resolution_mode=slot.resolution_mode,
        selection_mode=slot.selection_mode,
        selected_by="user" if slot.selection_mode == "interactive" else "autonomous",
        refs=refs,
        selected_at_us=at_us,
    )
    try:
        wrote = await artifacts.insert_selection(act)
    except IncoherentSelection as refused:
        # Between the resolution and the record somebody archived, reclassified or hid what was picked.
        gone = [int(problem.pointer.rpartition("/")[2]) for problem in refused.problems]
        detail = f"{_named([refs[at].artifact_id for at in gone])}: {refused.problems[0].detail}; look and pick again"
        return PickRefused(code="selection_incoherent", detail=detail, pointer="/selectedRefs")
    kept = {ref.triple for ref in refs}
    manifest = tuple(line for line, ref in zip(resolution.manifest, resolution.refs, strict=True) if ref.triple in kept)
    return Selected(act=act, manifest=manifest, wrote=wrote)


def selection_id(slot_id: str, origin: SelectionOrigin) -> str:
    """The id of one act: the same act key in the same run, package and slot gives the same id."""
    told = [origin.org_id, origin.parent_run_id, origin.parent_package_name, slot_id, origin.act_key]
    return "sel_" + hashlib.sha256(canonical(told)).hexdigest()[:16]


def bind_selection(selected: Selected) -> SlotBinding:
    """What the consuming node gets: one item of `contextRefs`."""
    return SlotBinding(slotId=selected.act.slot_id, refs=selected.act.refs)


async def replay_selection(act: SelectionAct, *, artifacts: Artifacts) -> Sequence[PinnedContent]:
    """What an act pinned, with the same bytes as then, whatever became of it since.

    Raises:
        NotFound: a pin was never recorded.
    """
    return await artifacts.pinned(act.origin.org_id, act.refs) if act.refs else ()
