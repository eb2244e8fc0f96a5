"""An act is what its signer sent: each digest in it is computed again, and another kind, version or value is found."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.statements.acts import act_disagreement

SENT = {"envelope": {"payload": "eyJhIjoxfQ=="}, "expected": 2}
ACT: dict[str, Any] = {
    "kind": "artifact.published",
    "arguments": {"ref": "p@1.0.0", "kind": "context_pack", "digest": content_address({"a": 1})},
    "expected": 2,
}


def test_an_act_that_follows_from_what_was_sent_is_one() -> None:
    assert act_disagreement(ACT, "packs", SENT) is None


@pytest.mark.parametrize(
    ("changed", "sent", "fault"),
    [
        ({"kind": "packs.pinned"}, SENT, "another kind"),
        ({"arguments": None}, SENT, "another kind"),
        ({"expected": 3}, SENT, "another version"),
        ({"arguments": {**ACT["arguments"], "digest": "sha256:0"}}, SENT, "another `digest`"),
        ({"arguments": {**ACT["arguments"], "more": 1}}, SENT, "another `more`"),
        ({}, {}, "does not follow"),
        ({}, {"envelope": {"payload": "no Base64"}}, "does not follow"),
    ],
)
def test_what_differs_is_named(changed: dict[str, Any], sent: dict[str, Any], fault: str) -> None:
    assert fault in (act_disagreement({**ACT, **changed}, "packs", sent) or "")
