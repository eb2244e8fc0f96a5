"""When a promoted memory expires follows from its proposal and its review; nothing else states it."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.memory import PromotedMemory
from contextos.contracts.ids import derive

PROPOSAL: dict[str, Any] = {
    "proposal_id": derive("mwp_", "run_a1b2c3d4e5f60718", "memory_proposal", 0),
    "run_id": "run_a1b2c3d4e5f60718",
    "candidate": {
        "entity_ceid": "customer:cus_77",
        "predicate": "prefers_channel",
        "value": "email",
        "evidence_refs": ("session:sess_1",),
        "confidence": 1,
    },
    "write_class": "preference",
    "tier_target": "semantic",
    "classification": "INTERNAL",
    "consent_check": "passed",
    "contradiction_check": {"verdict": "no_conflict"},
    "auto_promote_eligible": False,
    "proposed_at_us": 1,
}
REVIEW: dict[str, Any] = {
    "proposal_id": PROPOSAL["proposal_id"],
    "verdict": "promote",
    "reviewer": "usr_reviewer",
    "reason": "",
    "at_us": 5,
    "integrity": "untrusted",
    "fact_digest": "sha256:" + "0" * 64,
    "proposal_digest": "sha256:" + "1" * 64,
}


@pytest.mark.parametrize(("ttl_s", "expires_at_us"), [(None, None), (60, 60_000_005)])
def test_a_memory_expires_after_its_time_from_the_review(ttl_s: int | None, expires_at_us: int | None) -> None:
    memory = PromotedMemory.model_validate({"proposal": {**PROPOSAL, "ttl_s": ttl_s}, "review": REVIEW})
    assert memory.expires_at_us == expires_at_us
    assert "expires_at_us" not in memory.to_json()
