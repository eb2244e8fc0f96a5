"""A declaration is the same in Python, YAML and JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos import pack
from contextos.errors import InvalidArtifact, InvalidEnvelope, InvalidInput
from contextos.packs.reading import read_declaration, write_declaration
from tests.unit.packs.deploying import TOOLS, declared

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
