"""Roles that show the runs of others are few, and no role does by accident."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextos.server.access import held_roles, reads_every_run
from contextos.trust.identity.callers import Caller
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace


@pytest.mark.parametrize(
    ("roles", "reads"), [([], False), (["finance_lead"], False), (["auditor"], True), (["operator", "x"], True)]
)
def test_only_operators_and_auditors_read_the_runs_of_others(roles: list[str], reads: bool) -> None:
    assert reads_every_run(frozenset(roles)) is reads


def caller(tenant: str, person: str) -> Caller:
    return Caller("user", tenant, person, "issuer", None, (), (), 0, "")


@pytest.mark.parametrize(("person", "roles"), [(REQUESTER, set()), (LEAD, {"finance_lead"}), ("nobody", set())])
def test_the_roles_are_those_of_the_directory(face: HttpFace, person: str, roles: set[str]) -> None:
    for tenant in (TENANT, OTHER_TENANT):
        assert face.call(held_roles(face.app, caller(tenant, person))) == roles
    assert "operator" in face.call(held_roles(face.app, caller(TENANT, OPERATOR)))
    assert face.call(held_roles(face.app, caller("tenant_nowhere", OPERATOR))) == set()


def test_a_token_that_an_agent_was_given_has_none_of_the_roles_of_its_person(face: HttpFace) -> None:
    operator = caller(TENANT, OPERATOR)
    assert face.call(held_roles(face.app, replace(operator, agent_ids=("agt_support",)))) == set()
    assert face.call(held_roles(face.app, replace(operator, kind="workload", agent_ids=("agt_support",)))) == set()
