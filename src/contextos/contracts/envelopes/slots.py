"""Context slots: what an agent declares, what is stored of artifacts, and what was picked and pinned.

What travels between agents keeps the guide's names on the wire (`slotId`, `sourceScope`); what only the store keeps has
names like every other contract. Times are Unix time in microseconds.
Source: shared/spec/seeds/003, "Slot schema", "Resolver semantics", "run_context_selections audit table";
shared/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field, Strict

from contextos.contracts.ids import Digest, Form
from contextos.contracts.model import MAX_NAME_CHARS, Count, ListOnly, Model, Name, NonEmpty, Positive, Seq, Share, Text
from contextos.contracts.refs import EvidenceRef

SelectionMode = Literal["interactive", "autonomous"]
ResolutionMode = Literal["override", "accumulate"]
SourceScope = Literal["project", "user", "team", "organization", "workspace"]
OwnerLevel = Literal["user", "team", "organization", "workspace"]
AssertedBy = Literal["user", "authoring_skill", "agent", "matcher"]
Eligibility = Literal["eligible", "draft", "archived"]
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
"""From narrow to broad."""

PRECEDENCE: Final[dict[AssertedBy, int]] = {"user": 3, "authoring_skill": 2, "agent": 1, "matcher": 0}
"""Who outranks whom where two assert the same extension of one artifact."""

CAPABILITY_PREFIX: Final = "slots."
"""Policy names the selection for a slot of a run `slots.<slot id>`."""
MAX_CANDIDATES: Final = 1000
"""As many candidates as one resolution holds; there may be more, and then it says so."""
MAX_SLOT_EXTENSIONS: Final = 100
"""As many extensions as one slot accepts: a store looks for each of them in every way that an actor may see."""
MAX_CONTENT_CHARS: Final = 1_048_576
MAX_SLOT_REFS: Final = 256
"""As many artifacts as one selection pins."""
MAX_SLOT_BYTES: Final = 4 << 20
"""As much content as one selection pins, in UTF-8: one artifact of the largest size, whatever its characters."""
MAX_TEMPLATE_BYTES: Final = 8 << 20
"""As much content as all slots of a template bring to a compile; escaped twice it still fits one journal entry."""

SLOT: Final = Form("slot id", "offeringContext", "[A-Za-z_][A-Za-z0-9_]*", max_chars=64)
EXTENSION: Final = Form(
    "package name of an extension",
    "@cinatra-ai/marketing-icp-artifact",
    "(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*",
    max_chars=214,
)
ARTIFACT: Final = Form("artifact id", "art_icp_enterprise", "[A-Za-z0-9_.:-]{1,128}")
REVISION: Final = Form("revision id", "rev_0f1e2d3c4b5a6978", "rev_[0-9a-f]{16}")
ASSERTION: Final = Form("assertion id", "asr_0f1e2d3c4b5a6978", "asr_[0-9a-f]{16}")
SELECTION: Final = Form("selection id", "sel_0f1e2d3c4b5a6978", "sel_[0-9a-f]{16}")
PARTY: Final = Form("id of a user, team, organisation or project", "org_acme", "[A-Za-z0-9_.@|-]{1,128}")
VISIBILITY: Final = Form(
    "visibility", "team:sales", "owner|org|workspace|admin|(?:team|project):[A-Za-z0-9_.@|-]{1,128}"
)

TOKEN: Final = Form("name without spaces", "run_a1b2c3d4e5f60718", "[!-~]{1,200}")

SlotId = Annotated[str, SLOT]
Extension = Annotated[str, EXTENSION]
ArtifactId = Annotated[str, ARTIFACT]
RevisionId = Annotated[str, REVISION]
AssertionId = Annotated[str, ASSERTION]
SelectionId = Annotated[str, SELECTION]
Party = Annotated[str, PARTY]
Visibility = Annotated[str, VISIBILITY]
Token = Annotated[str, TOKEN]
Title = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS, pattern=r"^[^\x00]*$")]
"""What a person reads of an artifact. It is text of others and is never shown as it stands."""
Mime = Annotated[str, Field(max_length=200, pattern=r"^[ -~]+$")]
Content = Annotated[str, Field(max_length=MAX_CONTENT_CHARS, pattern=r"^[^\x00]*$")]
Accepted = Annotated[tuple[Extension, ...], Strict(False), Field(max_length=MAX_SLOT_EXTENSIONS), ListOnly(at_least=1)]


class AgentContextSlot(Model):
    """One slot of an agent (`metadata.cinatra.contextSlots`). `readableOnly` is shown and not enforced yet.

    `minItems` is the caller's floor, enforced at selection; `maxItems` caps what is selected.
    """

    slot_id: SlotId = Field(alias="slotId")
    accepted_artifact_extensions: Accepted = Field(alias="acceptedArtifactExtensions")
    selection_mode: SelectionMode = Field(alias="selectionMode")
    resolution_mode: ResolutionMode = Field(alias="resolutionMode")
    min_items: int = Field(default=0, alias="minItems", ge=0, le=MAX_SLOT_REFS)
    max_items: int | None = Field(default=None, alias="maxItems", ge=1, le=MAX_CANDIDATES)
    readable_only: bool = Field(default=False, alias="readableOnly")

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        if self.max_items is not None and self.min_items > self.max_items:
            yield "min_items", "`minItems` is above `maxItems`"
        if len(set(self.accepted_artifact_extensions)) != len(self.accepted_artifact_extensions):
            yield "accepted_artifact_extensions", "an extension stands here twice"


class ExtensionManifest(Model):
    """An installed artifact extension. It stands in for each extension that it `satisfies`, one hop and no further."""

    extension: Extension
    satisfies: Seq[Extension] = ()


class SlotActor(Model):
    """On whose behalf a slot is resolved, from verified identity; without an organisation nothing is visible."""

    principal_id: Party
    organization_id: Party | None = None
    team_ids: Seq[Party] = ()
    project_ids: Seq[Party] = ()
    platform_admin: bool = False


class Artifact(Model):
    """An artifact as it is added. Its owner sees it whatever its visibility; its meaning lies in assertions.

    `owner_id` names the user, team, organisation or workspace that `owner_level` says.
    """

    artifact_id: ArtifactId
    org_id: Party
    title: Title
    owner_level: OwnerLevel
    owner_id: Party
    visibility: Visibility
    created_by: Party
    created_at_us: Count


class NewRevision(Model):
    """Content to be appended to an artifact as its next revision."""

    artifact_id: ArtifactId
    org_id: Party
    mime: Mime
    content: Content
    created_by: Party
    created_at_us: Count


class Revision(Model):
    """One representation of an artifact: appended and never changed. `revision` counts from 1."""

    revision_id: RevisionId
    revision: Positive
    artifact_id: ArtifactId
    org_id: Party
    mime: Mime
    content: Content
    digest: Digest
    created_by: Party
    created_at_us: Count


class NewAssertion(Model):
    """That an artifact is of an extension, and who says so. A matcher's word is a draft and never eligible."""

    artifact_id: ArtifactId
    org_id: Party
    extension: Extension
    asserted_by: AssertedBy
    principal_id: Party
    confidence: Share = 1
    asserted_at_us: Count


class Assertion(Model):
    """A semantic assertion: its identity is frozen, its eligibility only ever ends."""

    assertion_id: AssertionId
    artifact_id: ArtifactId
    org_id: Party
    extension: Extension
    asserted_by: AssertedBy
    principal_id: Party
    confidence: Share
    eligibility: Eligibility
    asserted_at_us: Count
    archived_at_us: Count | None = None


class Outranked(Model):
    """Why an assertion was not made: a stronger one of the same extension is active."""

    by: Assertion


class ArtifactRef(Model):
    """The three-key pin: which artifact, which revision of it, under which classification; and where it came from."""

    artifact_id: ArtifactId = Field(alias="artifactId")
    representation_revision_id: RevisionId = Field(alias="representationRevisionId")
    semantic_assertion_id: AssertionId = Field(alias="semanticAssertionId")
    extension: Extension
    source_scope: SourceScope = Field(alias="sourceScope")
    owner_id: Party = Field(alias="ownerId")

    @property
    def triple(self) -> tuple[str, str, str]:
        """Its identity."""
        return self.artifact_id, self.representation_revision_id, self.semantic_assertion_id


class Candidate(Model):
    """A ref that a slot may take, and the title that a person chooses it by. The title is text of others."""

    ref: ArtifactRef
    title: Title


class CandidateQuery(Model):
    """What the store is asked: the actor's visible artifacts of these extensions.

    With `project_id` rows of that project alone; without one none of any project. `include_broader` also takes the
    rows that are of no project beside the project's own. At most `limit` come back, in the total order.
    """

    actor: SlotActor
    extensions: NonEmpty[Extension]
    project_id: Party | None = None
    include_broader: bool = False
    limit: int = Field(ge=1, le=MAX_CANDIDATES + 1)


class ManifestLine(Model):
    """One line of a resolution's manifest: what a ref is and from which scope it came."""

    ref: EvidenceRef
    extension: Extension
    source_scope: SourceScope = Field(alias="sourceScope")
    title: Title


class SlotResolution(Model):
    """What a slot may take, from narrow to broad. `more` says that the store holds candidates beyond the bound."""

    slot_id: SlotId = Field(alias="slotId")
    resolution_mode: ResolutionMode = Field(alias="resolutionMode")
    refs: Seq[ArtifactRef]
    manifest: Seq[ManifestLine]
    more: bool = False


class SlotBinding(Model):
    """What a consumer gets: an item of `contextRefs`, and of the `contextSlotBindings` that it feeds."""

    slot_id: SlotId = Field(alias="slotId")
    refs: Seq[ArtifactRef]


class SelectedRef(Model):
    """A ref as a person's answer carries it. Its triple is read and looked up; whatever else it says is not."""

    artifact_id: Name = Field(alias="artifactId")
    representation_revision_id: Name = Field(alias="representationRevisionId")
    semantic_assertion_id: Name = Field(alias="semanticAssertionId")
    extension: Any = None
    source_scope: Any = Field(default=None, alias="sourceScope")
    owner_id: Any = Field(default=None, alias="ownerId")
    title: Any = None

    @property
    def triple(self) -> tuple[str, str, str]:
        """What it claims to be."""
        return self.artifact_id, self.representation_revision_id, self.semantic_assertion_id


class UserResponse(Model):
    """The `userResponse` envelope: a person's pick for one slot, possibly of nothing."""

    slot_id: Name = Field(alias="slotId")
    resolution_mode: ResolutionMode = Field(alias="resolutionMode")
    selected_refs: Annotated[Seq[SelectedRef], Field(max_length=MAX_CANDIDATES)] = Field(alias="selectedRefs")


class SelectionOrigin(Model):
    """For whom an act of selection is: the run, the agent package whose slot it is, and the principal who acts.

    `act_key` tells acts of one slot in one run apart: the same key again is the same act, which is recorded once.
    """

    org_id: Party
    parent_run_id: Token
    parent_package_name: Token
    principal_id: Party
    act_key: Token


class SlotQuestion(Model):
    """What a run asks where its template has a slot step: which slot, for whom, within which project.

    What the actor may see is asked of the directory anew whenever it counts.
    """

    slot: AgentContextSlot
    actor: SlotActor
    project_id: Party | None
    origin: SelectionOrigin


class SelectionAct(Model):
    """One act of selection as it is recorded: a header, also where nothing was picked, and a row for each ref."""

    selection_id: SelectionId
    origin: SelectionOrigin
    slot_id: SlotId
    resolution_mode: ResolutionMode
    selection_mode: SelectionMode
    selected_by: SelectedBy
    refs: Seq[ArtifactRef]
    selected_at_us: Count


class PickRefused(Model):
    """Why a pick does not count; the slot is asked again and the run goes on waiting."""

    code: PickFault
    detail: Text
    pointer: Text = ""


class Selected(Model):
    """A selection that is recorded, and its manifest. `wrote` is false where the same act was recorded before."""

    act: SelectionAct
    manifest: Seq[ManifestLine]
    wrote: bool


class PinnedContent(Model):
    """A pinned ref with the bytes behind it, as they were at selection, whatever became of it since."""

    ref: ArtifactRef
    revision: Revision
    title: Title

    @property
    def size_bytes(self) -> int:
        """Of its content, in UTF-8."""
        return len(self.revision.content.encode())
