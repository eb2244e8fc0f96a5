"""Documents about the catalog: published artifacts, their digests, and the policies in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.collection import Collection, strict_decoder
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.policy import Level

MAX_DOCUMENT_BYTES: Final = 4 << 20

POLICY_LIST_KEY: Final = "policies"
"""The key of the one document of `POLICY_LISTS`."""


@dataclass(frozen=True, slots=True)
class PublishedPin:
    """The digest to which a ref is bound permanently, the kind of the artifact, and the principal that published it."""

    digest: str
    kind: str
    by: str

    def to_json(self) -> dict[str, str]:
        """The wire form, which the control stream records too."""
        return {"digest": self.digest, "kind": self.kind, "by": self.by}


@dataclass(frozen=True, slots=True)
class PolicyList:
    """The policies in force, strongest level first, and the refs that are withdrawn, sorted."""

    policies: tuple[tuple[Level, str], ...]
    withdrawn: tuple[str, ...]

    def levels(self) -> list[list[str]]:
        """The policies as JSON: a list of [level, ref]."""
        return [[level, ref] for level, ref in self.policies]


def _pin(pin: PublishedPin) -> bytes:
    return canonical(pin.to_json())


def _policies(one: PolicyList) -> bytes:
    return canonical({"policies": one.levels(), "withdrawn": list(one.withdrawn)})


def _object(raw: bytes) -> dict[str, Any]:
    value = loads(raw, max_bytes=MAX_DOCUMENT_BYTES)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


PINS: Final = Collection("pins", _pin, strict_decoder(PublishedPin))
"""By ref."""

ARTIFACTS: Final[Collection[dict[str, Any]]] = Collection("artifacts", canonical, _object)
"""By content digest: a DSSE envelope or an adapter definition. The reader compares its hash with the digest."""

POLICY_LISTS: Final = Collection("active", _policies, strict_decoder(PolicyList))
"""The one document `POLICY_LIST_KEY`."""
