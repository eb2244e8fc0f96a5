"""An act is what its signer sent: each statement is made again, and another kind, version or value is found."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.statements.acts import acts_disagreement
from contextos.control.artifacts import ARTIFACT_KINDS, MODELS

PAYLOAD = {"catalog_id": "p", "version": "1.0.0"}
ENVELOPE = {
    "payloadType": "application/vnd.contextos.intent-catalog+json",
    "payload": base64.b64encode(json.dumps(PAYLOAD).encode()).decode(),
}
ARGUMENTS = {"ref": "p@1.0.0", "kind": "intent_catalog", "digest": content_address(PAYLOAD)}
ACT: dict[str, Any] = {
    "tenant_id": "t",
    "actor": "o",
    "kind": "artifact.published",
    "arguments": ARGUMENTS,
    "expected": 0,
}


def test_acts_that_follow_from_what_was_sent_are_the_right_ones_and_none_is_nothing_to_sign() -> None:
    assert acts_disagreement([ACT], "packs", {"envelope": ENVELOPE}) is None
    assert acts_disagreement([], "packs", {}) is None


@pytest.mark.parametrize(
    ("acts", "envelope", "fault"),
    [
        ([{**ACT, "kind": "packs.pinned"}], ENVELOPE, "another `kind`"),
        ([{**ACT, "arguments": None}], ENVELOPE, "another `arguments`"),
        ([{**ACT, "expected": 3}], ENVELOPE, "another `expected`"),
        ([{**ACT, "actor": "eve"}], ENVELOPE, "another `actor`"),
        ([{**ACT, "tenant_id": "u"}], ENVELOPE, "another `tenant_id`"),
        ([{**ACT, "more": 1}], ENVELOPE, "another `more`"),
        ([{**ACT, "arguments": {**ARGUMENTS, "digest": "sha256:0"}}], ENVELOPE, "another `digest`"),
        ([{**ACT, "arguments": {**ARGUMENTS, "more": 1}}], ENVELOPE, "another `more`"),
        ([ACT, ACT], ENVELOPE, "2 statements and not 1"),
        ([ACT], None, "'envelope' was neither sent nor held"),
        ([ACT], {**ENVELOPE, "payload": "no Base64"}, "does not follow"),
    ],
)
def test_what_differs_is_named(acts: list[dict[str, Any]], envelope: Any, fault: str) -> None:
    sent = {} if envelope is None else {"envelope": envelope}
    assert fault in (acts_disagreement(acts, "packs", sent, "t", "o") or "")


def test_each_kind_of_artifact_is_named_as_the_catalog_names_it() -> None:
    payloads = {
        "context_pack": {"pack_meta": {"pack_id": "p", "pack_version": "1.0.0"}, "version": "9.9.9"},
        "model_profile": {"profile_id": "p", "version": "1.0.0"},
        "routing_rules": {"rules_id": "p", "version": "1.0.0", "rules": []},
        "policy_bundle": {"version": "1.0.0", "bundle": {"bundle_id": "p"}},
    }
    for payload_type, model in MODELS.items():
        kind = ARTIFACT_KINDS[model]
        payload = payloads.get(kind, PAYLOAD)
        envelope = {"payloadType": payload_type, "payload": base64.b64encode(json.dumps(payload).encode()).decode()}
        arguments = {"ref": "p@1.0.0", "kind": kind, "digest": content_address(payload)}
        assert acts_disagreement([{**ACT, "arguments": arguments}], "packs", {"envelope": envelope}) is None, kind
