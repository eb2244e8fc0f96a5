"""A stored artifact is an object, and an active set reads back in its order."""

from __future__ import annotations

import pytest

from contextos.contracts.acts import ActiveSet
from contextos.contracts.documents.catalog import ACTIVE_SET_KEY, ACTIVE_SETS, ARTIFACTS
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Document
from contextos.errors import ContextOSError


def test_an_active_set_keeps_the_order_of_its_levels() -> None:
    levels = (("platform", "p@1"), ("tenant", "t@1"), ("tenant", "a@1"))
    active = ActiveSet(tenant_id="tenant_acme", version=1, policies=levels, withdrawn=("old@1",))
    body = canonical(active.to_json())
    assert body == (
        b'{"policies":[["platform","p@1"],["tenant","t@1"],["tenant","a@1"]],'
        b'"tenant_id":"tenant_acme","version":1,"withdrawn":["old@1"]}'
    )
    assert ACTIVE_SETS.write(ACTIVE_SET_KEY, 0, active.to_json()).body == body
    assert parse(ActiveSet, ACTIVE_SETS.read(Document("active", ACTIVE_SET_KEY, 1, body)).body) == active


@pytest.mark.parametrize("raw", [b"[]", b"7", b"{", b'{"a":1,"a":2}'])
def test_an_artifact_that_is_no_object_is_not_read(raw: bytes) -> None:
    with pytest.raises(ContextOSError):
        ARTIFACTS.read(Document("artifacts", "sha256:1", 1, raw))
