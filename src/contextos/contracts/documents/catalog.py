"""Documents about the catalog: published artifacts, their digests, and what is active in the tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.collection import Collection, stored
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical

MAX_DOCUMENT_BYTES: Final = 4 << 20

ACTIVE_SET_KEY: Final = "artifacts"
"""The key of the one document of `ACTIVE_SETS`, and of every control entry of an act that changes it."""


@dataclass(frozen=True, slots=True)
class PublishedPin:
    """The content digest to which an artifact's reference is bound permanently, and the artifact's kind.

    Who published it is in the stream `control`.
    """

    digest: str
    kind: str

    def to_json(self) -> dict[str, str]:
        """Return this pin as a JSON object; the act that published the artifact has the same members."""
        return {"digest": self.digest, "kind": self.kind}


def _decode_object(raw: bytes) -> dict[str, Any]:
    value = loads(raw, max_bytes=MAX_DOCUMENT_BYTES)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


PINS: Final = stored("pins", PublishedPin)
"""By ref."""

ARTIFACTS: Final[Collection[dict[str, Any]]] = Collection("artifacts", canonical, _decode_object)
"""By content digest: a DSSE envelope or an adapter definition. The reader compares its hash with the digest."""

ACTIVE_SETS: Final[Collection[dict[str, Any]]] = Collection("active", canonical, _decode_object)
"""The one document `ACTIVE_SET_KEY`: a DSSE envelope over an `ActiveSet`, which the runtime sealed."""
