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
from contextos.trust.approvals.acts import ACT_ROLES
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


@NAMED
def test_a_governed_operation_is_for_one_role_that_acts_have(operation: Operation) -> None:
    if operation.signs:
        assert len(operation.roles) == 1
        assert operation.roles[0] in set(ACT_ROLES.values())
    assert operation.roles, "an operation for nobody"


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
