"""Context slots: the slot that an agent declares, its candidates, and the selection that is recorded.

A model that travels between agents keeps the specification's camelCase names on the wire (`slotId`, `sourceScope`).
A model that is only stored has names like every other contract. Times are Unix time in microseconds.
Source: docs/design/contracts.md, "Context slots"; the specification's context slots, "Slot schema",
"Resolver semantics", "run_context_selections audit table".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, Strict

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.artifacts import ArtifactRef, Extension, Party, SourceScope, Title
from contextos.contracts.ids import Form
from contextos.contracts.model import Count, ListOnly, Model, Name, NonEmpty, NotNull, Seq, Text
from contextos.contracts.refs import EvidenceRef

SelectionMode = Literal["interactive", "autonomous"]
ResolutionMode = Literal["override", "accumulate"]
SelectedBy = Literal["user", "agent", "autonomous"]
PickFault = Literal[
    "bad_envelope",
    "slot_mismatch",
    "resolution_mode_mismatch",
    "foreign_ref",
    "stale_ref",
    "duplicate_ref",
    "below_min_items",
    "above_max_items",
    "override_multi_select",
    "too_large",
    "selection_incoherent",
]

SCOPES: Final[tuple[SourceScope, ...]] = ("project", "user", "team", "organization", "workspace")
"""The scopes of artifacts, from narrow to broad."""

CAPABILITY_PREFIX: Final = "slots."
"""A policy rule names the selection for a slot as the capability `slots.<slot id>`."""
MAX_CANDIDATES: Final = 1000
"""Most candidates in one resolution; `SlotResolution.more` says whether the store holds more."""
MAX_SLOT_EXTENSIONS: Final = 100
"""Most extensions that one slot accepts. The store searches for each of them in each scope of the actor."""
MAX_SLOT_REFS: Final = 256
"""Most artifacts that one selection pins."""
MAX_SLOT_BYTES: Final = 4 << 20
"""Most content that one selection pins, in bytes of UTF-8; the largest artifact fits, whatever its characters."""
MAX_TEMPLATE_BYTES: Final = 8 << 20
"""Most content that all slots of a template add to a compile, in bytes; escaped twice it fits one journal entry."""

SLOT: Final = Form("slot id", "offeringContext", "[A-Za-z_][A-Za-z0-9_]*", max_chars=64)
SELECTION: Final = Form("selection id", "sel_0f1e2d3c4b5a6978", "sel_[0-9a-f]{16}")
TOKEN: Final = Form("name without spaces", "run_a1b2c3d4e5f60718", "[!-~]{1,200}")

SlotId = Annotated[str, SLOT]
SelectionId = Annotated[str, SELECTION]
Token = Annotated[str, TOKEN]


def _convert_whole_float(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


MinItems = Annotated[int, Field(ge=0, le=MAX_SLOT_REFS), BeforeValidator(_convert_whole_float)]
MaxItems = Annotated[int, Field(ge=1, le=MAX_CANDIDATES), BeforeValidator(_convert_whole_float)]
"""These integers can be spelled `1.0`, as JSON Schema allows it: agents are written by other people's tools."""

Accepted = Annotated[tuple[Extension, ...], Strict(False), Field(max_length=MAX_SLOT_EXTENSIONS), ListOnly(at_least=1)]


class AgentContextSlot(Model):
    """A context slot that an agent declares: which types of artifact it takes. An item of
    `metadata.cinatra.contextSlots`.

    A selection has at least `minItems` and at most `maxItems` artifacts. `readableOnly` is displayed and not
    enforced.
    """

    slot_id: SlotId = Field(alias="slotId")
    """The name of the slot within its agent."""
    accepted_artifact_extensions: Accepted = Field(alias="acceptedArtifactExtensions")
    """The types of artifacts (extensions) that fill the slot, from 1 to 100."""
    selection_mode: SelectionMode = Field(alias="selectionMode")
    """Who selects: a person who is asked (`interactive`), or the runtime (`autonomous`)."""
    resolution_mode: ResolutionMode = Field(alias="resolutionMode")
    """With `override` the narrowest scope that has artifacts fills the slot, and with `accumulate` all scopes do."""
    min_items: MinItems = Field(default=0, alias="minItems")
    """The fewest artifacts that a selection can have; a selection with fewer is refused."""
    max_items: Annotated[MaxItems | None, NotNull()] = Field(default_factory=lambda: None, alias="maxItems")
    """The most artifacts that a selection can have; absent, only the limits of the runtime count."""
    readable_only: bool = Field(default=False, alias="readableOnly")
    """Shown to the person who selects, and not enforced."""

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        if self.max_items is not None and self.min_items > self.max_items:
            yield "min_items", "`minItems` is above `maxItems`"
        if len(set(self.accepted_artifact_extensions)) != len(self.accepted_artifact_extensions):
            yield "accepted_artifact_extensions", "an extension is listed twice"


class SlotActor(Model):
    """The person for whom a slot is filled, as the directory knows them. Without an organisation they see no
    artifact.
    """

    principal_id: Party
    organization_id: Party | None = None
    team_ids: Seq[Party] = ()
    project_ids: Seq[Party] = ()
    platform_admin: bool = False


class Candidate(Model):
    """An artifact that can be selected for a slot, and its title for display. The title is untrusted text."""

    ref: ArtifactRef
    title: Title


class CandidateQuery(Model):
    """A query for at most `limit` artifacts of the types `extensions` that `actor` is allowed to see, in a fixed
    order.

    With `project_id` the result has that project's artifacts, and with `include_broader` also artifacts without a
    project. Without `project_id` it has only artifacts without a project.
    """

    actor: SlotActor
    extensions: NonEmpty[Extension]
    project_id: Party | None = None
    include_broader: bool = False
    limit: int = Field(ge=1, le=MAX_CANDIDATES + 1)


class ManifestLine(Model):
    """One selected artifact in the list that a selection returns: its reference, type, scope and title."""

    ref: EvidenceRef
    extension: Extension
    source_scope: SourceScope = Field(alias="sourceScope")
    title: Title


class SlotResolution(Model):
    """The artifacts that can be selected for a slot, from narrow scope to broad. `more`: the store has further
    candidates.
    """

    slot_id: SlotId = Field(alias="slotId")
    resolution_mode: ResolutionMode = Field(alias="resolutionMode")
    refs: Seq[ArtifactRef]
    manifest: Seq[ManifestLine]
    more: bool = False


class SlotBinding(Model):
    """The artifacts selected for one slot, in the form that an agent receives (`contextRefs`,
    `contextSlotBindings`).
    """

    slot_id: SlotId = Field(alias="slotId")
    refs: Seq[ArtifactRef]


class SelectedRef(Model):
    """An artifact in a person's answer. Only its three ids are used; the other fields are ignored."""

    artifact_id: Name = Field(alias="artifactId")
    representation_revision_id: Name = Field(alias="representationRevisionId")
    semantic_assertion_id: Name = Field(alias="semanticAssertionId")
    extension: Any = None
    source_scope: Any = Field(default=None, alias="sourceScope")
    owner_id: Any = Field(default=None, alias="ownerId")
    title: Any = None

    @property
    def triple(self) -> tuple[str, str, str]:
        """Return the three ids that the answer gives; they are not verified yet."""
        return self.artifact_id, self.representation_revision_id, self.semantic_assertion_id


class UserResponse(Model):
    """A person's answer (`userResponse`) to the question which artifacts fill one slot. The selection can be empty.
    Without `resolutionMode` the answer is for `accumulate`.
    """

    slot_id: Name = Field(alias="slotId")
    resolution_mode: ResolutionMode = Field(default="accumulate", alias="resolutionMode")
    selected_refs: Annotated[Seq[SelectedRef], Field(max_length=MAX_CANDIDATES)] = Field(alias="selectedRefs")


class SelectionOrigin(Model):
    """What a selection belongs to: the run, the agent package that declares the slot, and the person or agent who
    selects.

    `act_key` identifies the selection within its slot and run: a repeated key is the same selection, recorded once.
    """

    org_id: Party
    parent_run_id: Token
    parent_package_name: Token
    principal_id: Party
    act_key: Token


def selection_id(slot_id: str, origin: SelectionOrigin) -> str:
    """Return the id of a selection. The same act key in the same run, package and slot gives the same id."""
    parts = [origin.org_id, origin.parent_run_id, origin.parent_package_name, slot_id, origin.act_key]
    return "sel_" + hashlib.sha256(canonical(parts)).hexdigest()[:16]


class SlotQuestion(Model):
    """The question of a run at a slot step of its template: the slot, the actor and the project.

    The actor's rights are looked up in the directory again each time that they matter.
    """

    slot: AgentContextSlot
    actor: SlotActor
    project_id: Party | None
    origin: SelectionOrigin


class SelectionAct(Model):
    """A selection for one slot as it is recorded, with one row for each artifact. An empty selection is
    recorded too.
    """

    selection_id: SelectionId
    origin: SelectionOrigin
    slot_id: SlotId
    resolution_mode: ResolutionMode
    selection_mode: SelectionMode
    selected_by: SelectedBy
    refs: Seq[ArtifactRef]
    selected_at_us: Count


class PickRefused(Model):
    """Why a person's selection was refused. The run keeps waiting, and the person is asked again."""

    code: PickFault
    detail: Text
    pointer: Text = ""


class Selected(Model):
    """A recorded selection and the list of its artifacts. `wrote` is false if it had been recorded before."""

    act: SelectionAct
    manifest: Seq[ManifestLine]
    wrote: bool
