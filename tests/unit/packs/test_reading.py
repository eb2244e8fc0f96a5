"""A declaration is the same in Python, YAML and JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos import pack
from contextos.contracts.envelopes.plan import MAX_TEMPLATE_STEPS
from contextos.errors import InvalidArtifact, InvalidEnvelope, InvalidInput
from contextos.packs.building import expand_content
from contextos.packs.reading import draft_pack, read_declaration, write_declaration
from tests.unit.packs.deploying import DEFINITIONS, TENANT, TOOLS, declared

YAML = b"""\
name: deploy
version: 1.0.0
tenant: tenant_deploy
who: [deployer]
ask:
  - role: lead
    when: evidence.ci.blast_radius > 20 and args.env == "prod"
intents:
  deploy.change:
    steps: [{tool: ci_status}, {tool: rollback}, {tool: scale}]
"""
FIELDS: dict[str, Any] = {"ask": [{"role": "lead", "when": 'evidence.ci.blast_radius > 20 and args.env == "prod"'}]}


def test_yaml_and_json_and_python_say_the_same() -> None:
    told = declared(**FIELDS)
    assert read_declaration(YAML) == told
    assert read_declaration(json.dumps(told.to_json()).encode()) == told
    assert read_declaration(write_declaration(told).encode()) == told


@pytest.mark.parametrize("name", ["guardrails", "must_escalate", "policy_layer", "memory_layer"])
def test_what_only_the_whole_form_has_is_refused_with_the_way_there(name: str) -> None:
    with pytest.raises(InvalidArtifact, match=f"the short form has no `{name}`; write the whole form"):
        read_declaration(YAML + f"{name}: {{}}\n".encode())
    with pytest.raises(InvalidArtifact, match=f"the short form has no `{name}`"):
        pack("deploy", version="1.0.0", tenant="tenant_deploy", tools=[TOOLS], who=["a"], **{name: {}})


@pytest.mark.parametrize(
    ("raw", "error", "pointer"),
    [
        (b"- a", InvalidArtifact, ""),
        (b"", InvalidArtifact, ""),
        (YAML.replace(b"1.0.0", b"1.0"), InvalidEnvelope, "/version"),
        (YAML + b"owners: me\n", InvalidEnvelope, "/owners"),
        (YAML.replace(b"when:", b"wen:"), InvalidEnvelope, "/ask/0/wen"),
        (YAML.replace(b"tool: scale", b"tol: scale"), InvalidEnvelope, "/intents/deploy.change/steps/2/tool"),
    ],
    ids=["a list", "empty", "a number as version", "an unknown field", "a misspelt field", "a missing field"],
)
def test_what_does_not_fit_is_refused_at_its_place(raw: bytes, error: type[InvalidInput], pointer: str) -> None:
    with pytest.raises(error) as caught:
        read_declaration(raw)
    assert pointer in [one.pointer for one in caught.value.problems]


DRAFTED = {"name": "acme.deploy", "version": "0.1.0", "tenant": TENANT, "who": ["deployer"], "approver": "lead"}


def test_a_draft_expands_to_a_pack_over_all_tools() -> None:
    text = draft_pack("acme.yaml", DRAFTED, DEFINITIONS)
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
    text = draft_pack("acme.yaml", DRAFTED, [many])
    assert text.endswith(f"# - deploy.read_{MAX_TEMPLATE_STEPS}\n")


@pytest.mark.parametrize("change", [{"name": "a\n# b"}, {"who": "a"}, {"unknown": 1}, {"version": "new"}])
def test_a_field_that_does_not_fit_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        draft_pack("acme.yaml", {**DRAFTED, **change}, DEFINITIONS)
