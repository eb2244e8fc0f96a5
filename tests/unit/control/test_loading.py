"""What a run was pinned to: whole, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ContextPack
from contextos.control.artifacts import GovernedArtifact, ref_of
from contextos.control.loading import loaded_artifacts, pinned_refs
from contextos.errors import Integrity
from tests.modelled import pack, profile, rules

PACK = ContextPack.model_validate(pack())
RULES, PROFILE = RoutingRules.model_validate(rules()), ModelProfile.model_validate(profile())
PIN_SET: dict[str, Any] = {"pack_ref": PACK.pin, "policies": [], "redaction": ["R_MORE"]}


def by_ref(*artifacts: GovernedArtifact) -> dict[str, GovernedArtifact]:
    return {ref_of(one): one for one in artifacts}


def test_the_routes_of_a_pack_are_those_that_its_pins_name() -> None:
    loaded = loaded_artifacts(PIN_SET, by_ref(PACK, RULES, PROFILE), ())
    assert {name: one.rules for name, one in loaded.models.items()} == {"judge.plan": RULES}
    assert loaded.models["judge.plan"].profiles == {PROFILE.pin: PROFILE}
    assert loaded.intents.keys() == {one.intent_id for one in PACK.decision_layer.intents}
    assert "R_MORE" in loaded.pack.policy_layer.guardrails.redaction_rules


@pytest.mark.parametrize(
    ("there", "missing"),
    [((RULES, PROFILE), "the pack"), ((PACK, PROFILE), "the routing rules"), ((PACK, RULES), "a profile of")],
)
def test_pins_that_lack_a_part_load_nothing(there: tuple[GovernedArtifact, ...], missing: str) -> None:
    with pytest.raises(Integrity, match=missing):
        loaded_artifacts(PIN_SET, by_ref(*there), ())


def test_pins_of_adapters_and_of_lists_are_not_artifacts() -> None:
    pins = {"a@1.0.0": "sha256:1", "adapter:adp": "sha256:2", "egress": "sha256:3", "active_policies": "sha256:4"}
    assert pinned_refs(pins) == {"a@1.0.0": "sha256:1"}
