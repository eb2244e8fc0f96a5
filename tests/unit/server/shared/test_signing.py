"""A role is asked for before anything, and a statement has an input for each key of its signer."""

from __future__ import annotations

import pytest

from contextos.server.access import require_role
from contextos.server.problems import HttpProblem
from tests.http_face import OPERATOR, TENANT, HttpFace
from tests.unit.service.operations.test_packs import PACK, version_of


def test_one_of_the_roles_is_enough_and_none_is_not() -> None:
    require_role(frozenset({"auditor", "publisher"}), "operator", "auditor")
    with pytest.raises(HttpProblem) as refused:
        require_role(frozenset({"finance_lead"}), "operator", "auditor")
    assert (refused.value.status_code, refused.value.code) == (403, "not_allowed")


def test_a_statement_is_the_act_of_the_caller_with_an_input_for_each_key(face: HttpFace) -> None:
    body = {"reason": "a fault", "expected": version_of(face)}
    said = face.send("POST", f"/v1/packs/{PACK}/withdraw/statement", by=OPERATOR, json=body).json()
    [one] = said["statements"]
    assert (one["statement"]["actor"], one["statement"]["tenant_id"]) == (OPERATOR, TENANT)
    assert (one["statement"]["kind"], one["statement"]["arguments"]["ref"]) == ("artifact.withdrawn", PACK)
    known = face.call(face.app.deployment.ports.directory.approver(TENANT, OPERATOR))
    assert one["signing_inputs"].keys() == {key.kid for key in known.keys}
    assert face.send("GET", f"/v1/packs/{PACK}", by=OPERATOR).json()["withdrawn"] is False
