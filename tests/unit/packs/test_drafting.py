"""A draft has every tool that a pack can have, and can be expanded as it is."""

from __future__ import annotations

import json

import pytest

from contextos.contracts.envelopes.plan import MAX_TEMPLATE_STEPS
from contextos.errors import InvalidInput
from contextos.packs.building import expand_content
from contextos.packs.drafting import draft_pack
from tests.unit.packs.deploying import DEFINITIONS, TENANT

FIELDS = {"name": "acme.deploy", "version": "0.1.0", "tenant": TENANT, "who": ["deployer"], "approver": "lead"}


def test_a_draft_expands_to_a_pack_over_all_tools() -> None:
    text = draft_pack("acme.yaml", FIELDS, DEFINITIONS)
    assert "contextos pack expand acme.yaml" in text
    pack = json.dumps(expand_content(text.encode(), DEFINITIONS).document)
    assert all(f"deploy.{tool}" in pack for tool in ("ci_status", "rollback", "scale"))


def test_the_tools_that_are_left_out_are_named() -> None:
    [one] = DEFINITIONS
    many = one.model_copy(
        update={
            "capabilities": tuple(
                one.capabilities[0].model_copy(update={"name": f"read_{number}"})
                for number in range(MAX_TEMPLATE_STEPS + 1)
            )
        }
    )
    text = draft_pack("acme.yaml", FIELDS, [many])
    assert text.endswith(f"# - deploy.read_{MAX_TEMPLATE_STEPS}\n")


@pytest.mark.parametrize("change", [{"name": "a\n# b"}, {"who": "a"}, {"unknown": 1}, {"version": "new"}])
def test_a_field_that_does_not_fit_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        draft_pack("acme.yaml", {**FIELDS, **change}, DEFINITIONS)
