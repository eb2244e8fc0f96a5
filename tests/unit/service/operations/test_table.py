"""The table is what the HTTP API offers: each operation is there under its address, with its input, its answer and its
statement step. `tests/attacks/test_f48_http_control.py` asks each without a role.
"""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.model import Model
from contextos.server.operations import SIGNED_INPUTS, STATEMENT, operation_bodies, operation_routes
from contextos.service.operations.operation import Operation, Signed
from contextos.service.operations.table import OPERATION_TABLE
from contextos.trust.approvals.acts import ACT_ROLES, AUDITOR_ROLE, POLICY_ADMIN_ROLE, PUBLISHER_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE
from tests.http_face import OPERATOR, HttpFace

NAMED = pytest.mark.parametrize("operation", OPERATION_TABLE, ids=[one.name for one in OPERATION_TABLE])


def test_names_and_addresses_are_of_one_operation() -> None:
    assert (
        len({one.name for one in OPERATION_TABLE})
        == len({one.address for one in OPERATION_TABLE})
        == len(OPERATION_TABLE)
    )


@NAMED
def test_an_operation_is_in_the_openapi_document_with_its_input_and_answer(
    face: HttpFace, operation: Operation
) -> None:
    method, path = operation.address
    document = face.api.openapi()
    stated: dict[str, Any] = document["paths"]["/v1" + path][method.lower()]
    assert stated["operationId"] == operation.name
    answer = stated["responses"][str(operation.status)]["content"]["application/json"]["schema"]["$ref"]
    assert answer.rpartition("/")[2] == operation.output.__name__
    if operation.signs:
        body = stated["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        fields = document["components"]["schemas"][body]["properties"]
        assert fields.keys() == {*operation.input.model_fields, "tokens"}
        statement = document["paths"][f"/v1{path}{STATEMENT}"]["post"]
        assert statement["operationId"] == f"{operation.name}.statement"
    else:
        queried = {one["name"] for one in stated.get("parameters", []) if one["in"] == "query"}
        assert queried == set(operation.input.model_fields)


ACT_OF = {
    "packs.withdraw": "artifact.withdrawn",
    "pins.set": "packs.pinned",
    "pins.withdraw": "packs.withdrawn",
    "policies.activate": "policies.activated",
    "facts.set": "graph.written",
    "facts.replace": "graph.written",
    "facts.retract": "graph.withdrawn",
    "facts.load": "graph.written",
    "memories.review": "memory.reviewed",
}
"""The act that each governed operation signs."""
SEE_PACKS = {PUBLISHER_ROLE, POLICY_ADMIN_ROLE}


def test_a_governed_operation_is_for_the_role_of_its_act() -> None:
    governed = {one.name: one.roles for one in OPERATION_TABLE if one.signs}
    assert governed == {name: (ACT_ROLES[act],) for name, act in ACT_OF.items()}


@NAMED
def test_who_acts_or_audits_in_a_group_reads_it(operation: Operation) -> None:
    acting = {role for one in OPERATION_TABLE if one.group == operation.group and one.signs for role in one.roles}
    acting |= SEE_PACKS if operation.group in ("packs", "pins", "policies") else set()
    if not operation.signs:
        assert set(operation.roles) == acting | {AUDITOR_ROLE, OPERATOR_ROLE}
        assert operation.address[0] == "GET", "what a POST does is signed"


@NAMED
def test_an_input_refuses_what_it_does_not_have(operation: Operation) -> None:
    assert operation.input.model_config["extra"] == "forbid"


def test_a_statement_step_and_its_act_read_the_same_fields() -> None:
    for operation in OPERATION_TABLE:
        if operation.signs:
            signed: type[Model] = SIGNED_INPUTS[operation.name]
            assert issubclass(signed, operation.input)
            assert issubclass(signed, Signed)


def test_every_operation_has_its_routes_and_no_other_is_there() -> None:
    wanted = {(one.address[0], one.address[1]) for one in OPERATION_TABLE}
    wanted |= {(one.address[0], one.address[1] + STATEMENT) for one in OPERATION_TABLE if one.signs}
    there = {(method, route.path) for route in operation_routes().routes for method in route.methods}  # type: ignore[attr-defined]
    assert there == wanted


@pytest.mark.parametrize("path", [one.address[1] for one in OPERATION_TABLE if one.is_paged])
def test_a_query_of_empty_names_is_none(face: HttpFace, path: str) -> None:
    more = "subject=customer:cus_77" if path == "/facts" else ""
    assert face.send("GET", f"/v1{path}?&&=&{more}", by=OPERATOR).status_code == 200
    unknown = face.send("GET", f"/v1{path}?limits=1&{more}", by=OPERATOR)
    assert (unknown.status_code, unknown.json()["errors"][0]["code"]) == (422, "unknown_parameter")


def test_one_body_has_one_model() -> None:
    bodies = list(operation_bodies())
    assert len({one.__name__ for one in bodies}) == len(bodies)
