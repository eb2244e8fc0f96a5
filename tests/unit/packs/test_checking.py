"""Packs, catalogs and policies are read in every form in which an author has them, and checked with what is known."""

from __future__ import annotations

import json

import pytest
import yaml

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import HeldRoles
from contextos.control.artifacts import PACK_TYPE
from contextos.errors import InvalidArtifact, InvalidInput
from contextos.packs.checking import KnownHere, artifact_problems, read_unsigned
from contextos.packs.expansion import expand
from contextos.packs.reading import write_declaration
from contextos.trust.seal import KeyRing, seal
from tests.modelled import profile, rules
from tests.unit.packs.deploying import DEFINITIONS, TENANT, declared

SHORT = write_declaration(declared(tools=["ci_status", "rollback", "scale"])).encode()
WHOLE = dict(expand(declared(), DEFINITIONS).document)


def test_the_short_form_the_whole_one_and_its_envelope_are_one_pack() -> None:
    envelope = seal(PACK_TYPE, canonical(WHOLE), KeyRing.from_seed(b"0" * 32), "pack")
    forms = [SHORT, json.dumps(WHOLE).encode(), json.dumps(envelope).encode()]
    read = [read_unsigned(one, lambda: DEFINITIONS) for one in forms]
    assert {artifact.to_json()["pack_meta"]["pack_id"] for artifact, _ in read} == {"deploy"}
    assert [expansion is not None for _, expansion in read] == [True, False, False]


def test_a_profile_and_rules_of_models_are_read_from_yaml_too() -> None:
    quoted = yaml.safe_dump(rules(), default_style='"').encode()
    for document, raws in (
        (profile(), [yaml.safe_dump(profile()).encode(), json.dumps(profile()).encode()]),
        (rules(), [yaml.safe_dump(rules()).encode(), quoted]),
    ):
        for raw in raws:
            artifact, expansion = read_unsigned(raw, lambda: DEFINITIONS)
            assert (artifact.to_json(), expansion) == (document, None)
    with pytest.raises(InvalidInput, match="line 2, column 1"):
        read_unsigned(b"profile_id: model.large\nversion: 1\n", lambda: DEFINITIONS)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"{", b"5", b'{"payloadType": "x", "payload": ""}'])
def test_what_is_no_artifact_is_refused(raw: bytes) -> None:
    with pytest.raises((InvalidInput, InvalidArtifact)):
        read_unsigned(raw, lambda: DEFINITIONS)


def test_who_is_known_is_asked_for_the_roles_of_the_pack() -> None:
    artifact, _ = read_unsigned(json.dumps(WHOLE).encode(), lambda: DEFINITIONS)
    by_id = {one.adapter_id: one for one in DEFINITIONS}
    nobody = KnownHere(by_id, {TENANT: HeldRoles(users=("deployer",), approvers=())}, {})
    assert list(artifact_problems(artifact)) == []
    assert "approver" in " ".join(one.detail for one in artifact_problems(artifact, (), nobody))
