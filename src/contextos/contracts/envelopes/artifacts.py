"""Artifacts: what the store keeps of them, and the reference that pins one.

An artifact has revisions (its content) and semantic assertions (which extension it is, and who asserts that).
`ArtifactRef` travels between agents and keeps the specification's camelCase names on the wire; the other models are
only stored. Times are Unix time in microseconds. A `ToolArtifact` is what a tool made beside its output.
Source: docs/design/contracts.md, "Context slots"; the specification's context slots, "Resolver semantics".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, model_validator

from contextos.contracts.ids import Digest, Form
from contextos.contracts.model import MAX_NAME_CHARS, Count, Model, Name, Positive, Seq, Share, Text
from contextos.contracts.refs import EvidenceRef

SourceScope = Literal["project", "user", "team", "organization", "workspace"]
OwnerLevel = Literal["user", "team", "organization", "workspace"]
AssertedBy = Literal["user", "authoring_skill", "agent", "matcher"]
Eligibility = Literal["eligible", "draft", "archived"]
WithheldCode = Literal["unsafe_output", "output_disagrees", "erased"]

PRECEDENCE: Final[dict[AssertedBy, int]] = {"user": 3, "authoring_skill": 2, "agent": 1, "matcher": 0}
"""Rank of an asserter: of two assertions of the same extension for one artifact, the higher rank wins."""

MAX_CONTENT_CHARS: Final = 1_048_576
MIN_RUN: Final = 10
_RUN: Final = re.compile(rb"[ -~]{%d,}" % MIN_RUN)
_URL_SAFE: Final = str.maketrans("-_", "+/")

EXTENSION: Final = Form(
    "package name of an extension",
    "@cinatra-ai/marketing-icp-artifact",
    "(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*",
    max_chars=214,
)
ARTIFACT: Final = Form("artifact id", "art_icp_enterprise", "[A-Za-z0-9_.:-]{1,128}")
REVISION: Final = Form("revision id", "rev_0f1e2d3c4b5a6978", "rev_[0-9a-f]{16}")
ASSERTION: Final = Form("assertion id", "asr_0f1e2d3c4b5a6978", "asr_[0-9a-f]{16}")
PARTY: Final = Form("id of a user, team, organisation or project", "org_acme", "[A-Za-z0-9_.@|-]{1,128}")
VISIBILITY: Final = Form(
    "visibility", "team:sales", "owner|org|workspace|admin|(?:team|project):[A-Za-z0-9_.@|-]{1,128}"
)

Extension = Annotated[str, EXTENSION]
ArtifactId = Annotated[str, ARTIFACT]
RevisionId = Annotated[str, REVISION]
AssertionId = Annotated[str, ASSERTION]
Party = Annotated[str, PARTY]
Visibility = Annotated[str, VISIBILITY]
Title = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS, pattern=r"^[^\x00]*$")]
"""The name of an artifact for people. It is untrusted text: escape it before it is displayed."""
Mime = Annotated[str, Field(max_length=200, pattern=r"^[ -~]+$")]
Content = Annotated[str, Field(max_length=MAX_CONTENT_CHARS, pattern=r"^[^\x00]*$")]


class ExtensionManifest(Model):
    """An installed type of artifact (an extension). A slot that accepts a type named in `satisfies` also accepts this
    type.

    The list is not transitive: what the types in `satisfies` satisfy in turn does not count.
    """

    extension: Extension
    satisfies: Seq[Extension] = ()


class Artifact(Model):
    """An artifact without its content. Its owner always sees it; `visibility` says who else does.

    `owner_id` is the id of a user, team, organisation or workspace, as `owner_level` says.
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
    """The content of a revision that is to be appended to an artifact."""

    artifact_id: ArtifactId
    org_id: Party
    mime: Mime
    content: Content
    created_by: Party
    created_at_us: Count


class Revision(Model):
    """One revision of an artifact: its content at one time, which never changes. `revision` counts from 1."""

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
    """A new assertion, the statement that an artifact is of a certain type (extension).
    An assertion by an automatic matcher is a draft: the artifact does not become eligible by it.
    """

    artifact_id: ArtifactId
    org_id: Party
    extension: Extension
    asserted_by: AssertedBy
    principal_id: Party
    confidence: Share = 1
    asserted_at_us: Count


class Assertion(Model):
    """A stored assertion: the statement that an artifact is of a certain type (extension).
    Only its eligibility can change, and only from eligible to archived.
    """

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


class StoredLibrary(NamedTuple):
    """Every row of a tenant's artifacts, in order: the installed types, each artifact and whether it was deleted, each
    revision (organisation, artifact, number, digest, author, time) without its text, and each assertion.
    """

    extensions: Sequence[ExtensionManifest]
    artifacts: Sequence[tuple[Artifact, bool]]
    revisions: Sequence[tuple[str, str, int, str, str, int]]
    assertions: Sequence[Assertion]


class Outranked(Model):
    """The answer to an assertion that was not stored, because the active assertion `by` of the same type has a higher
    rank.
    """

    by: Assertion


class ArtifactRef(Model):
    """A reference to exactly one revision of an artifact: the ids of artifact, revision and assertion, with the
    artifact's type (extension), scope and owner.
    """

    artifact_id: ArtifactId = Field(alias="artifactId")
    representation_revision_id: RevisionId = Field(alias="representationRevisionId")
    semantic_assertion_id: AssertionId = Field(alias="semanticAssertionId")
    extension: Extension
    source_scope: SourceScope = Field(alias="sourceScope")
    owner_id: Party = Field(alias="ownerId")

    @property
    def triple(self) -> tuple[str, str, str]:
        """Return (artifact id, revision id, assertion id), which identify the reference."""
        return self.artifact_id, self.representation_revision_id, self.semantic_assertion_id


class PinnedContent(Model):
    """An artifact reference with the content that the artifact had when it was selected. Later changes do not affect
    it.
    """

    ref: ArtifactRef
    revision: Revision
    title: Title

    @property
    def size_bytes(self) -> int:
        """Return the size of the content in bytes of UTF-8."""
        return len(self.revision.content.encode())


class ToolArtifact(Model):
    """Something that a tool made and returns beside its output, such as a file.

    Bytes that are text (UTF-8) are read as this text, so that every search in texts covers them too. Other bytes are
    searched as far as they are text; if something is found in them, the artifact is withheld.
    """

    name: Name
    """The tool's name for the artifact: a file name or a URI, which is never opened."""
    media_type: Name
    """The media type of the content, as the tool states it."""
    content: Any = None
    """A text or another JSON value; with `encoding`, the base64 of bytes."""
    encoding: Literal["base64"] | None = None
    """How bytes are written as a text; absent, `content` is the value itself."""

    @model_validator(mode="before")
    @classmethod
    def _read_bytes_that_are_text(cls, value: Any) -> Any:
        if not (isinstance(value, dict) and value.get("encoding") == "base64" and type(value.get("content")) is str):
            return value
        try:
            text = _decode_base64(value["content"]).decode()
        except ValueError:
            return value
        return {name: member for name, member in value.items() if name != "encoding"} | {"content": text}

    def hidden_texts(self) -> tuple[str, str]:
        """Return the text in the bytes of the content, read as UTF-8 and as UTF-16, also if the content is base64
        without saying so: (all readable characters; only runs of at least `MIN_RUN` readable ASCII characters). In the
        first text, short forms such as an e-mail address can appear by chance.

        Raises:
            ValueError: the content states base64 and is not, or states a text and is not UTF-8.
        """
        try:
            content = _decode_base64(self.content) if isinstance(self.content, str) else b""
        except ValueError:
            if self.encoding is None:
                return "", ""
            raise ValueError("is not base64, as it says") from None
        if self.encoding is not None and self.media_type.strip().lower().startswith("text/"):
            raise ValueError("is a text of other bytes than UTF-8")
        variants = (content, content.replace(b"\0", b""))
        runs = b"\0".join(run for variant in variants for run in _RUN.findall(variant))
        return b"\0".join(variants).decode(errors="ignore"), runs.decode()


def _decode_base64(text: str) -> bytes:
    """Decode base64 of either alphabet, in lines or not, padded or not. Raises `ValueError` if it is not base64."""
    text = "".join(text.split()).translate(_URL_SAFE)
    return base64.b64decode(text if text.endswith("=") else text + "=" * (-len(text) % 4), validate=True)


class Withheld(Model):
    """Why the answer of a tool is withheld from everybody. Nothing else is kept of an unsafe answer.

    `digest` and `size` (bytes) are of the answer as canonical JSON, after redaction; null if the answer is not JSON.
    """

    code: WithheldCode
    """A stable code for programs."""
    detail: Text
    """What was wrong with the answer, for people and models."""
    digest: Digest | None = None
    """The digest of the answer, to compare it with the other system's records."""
    size: Count | None = None
    """The size of the answer in bytes."""


class RecordedArtifact(ToolArtifact):
    """An artifact of a result: its content as it was kept, or why it is withheld."""

    artifact_id: Name
    """The id of the artifact, derived from the id of its call."""
    evidence_ref: EvidenceRef | None = None
    """The reference under which a result and a record cite it; absent if the content is withheld."""
    digest: Digest | None = None
    """The digest of the content as canonical JSON, after redaction."""
    size: Count | None = None
    """The size of the content as canonical JSON, after redaction, in bytes."""
    withheld: Withheld | None = None
    """Why there is no content: it is unsafe, or the artifacts of the answer are too large together."""
