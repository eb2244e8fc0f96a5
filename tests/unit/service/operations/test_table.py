"""The table is what the HTTP API offers: each operation is there under its address, with its input, its answer and its
statement step. `tests/attacks/test_f48_http_control.py` asks each without a role.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from contextos.contracts.model import Model
from contextos.contracts.statements.acts import ACT_ROUTES
from contextos.server.operations import SIGNED_INPUTS, STATEMENT, operation_bodies, operation_routes
from contextos.service.operations.facts import FactPage, list_facts
from contextos.service.operations.operation import OF_RUN, Operation, Paged, Signed
from contextos.service.operations.table import OPERATION_TABLE
from contextos.trust.approvals.acts import ACT_ROLES, AUDITOR_ROLE, OWN_RUN_ACTS, POLICY_ADMIN_ROLE, PUBLISHER_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE
from tests.attacks.test_g54_acts_follow_from_what_was_sent import SENT
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
    answer = stated["responses"][str(operation.status)]["content"]
    if operation.media_type:
        assert answer == {operation.media_type: {}}
    else:
        assert answer["application/json"]["schema"]["$ref"].rpartition("/")[2] == operation.output.__name__
    if operation.signs:
        body = stated["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        fields = document["components"]["schemas"][body]["properties"]
        assert fields.keys() == {*operation.input.model_fields, "tokens"}
        statement = document["paths"][f"/v1{path}{STATEMENT}"]["post"]
        assert statement["operationId"] == f"{operation.name}.statement"
    else:
        queried = {one["name"] for one in stated.get("parameters", []) if one["in"] == "query"}
        assert queried == set(operation.input.model_fields)


PARAMETER = re.compile(r"\{\w+\}")
SIGNED = [one for one in OPERATION_TABLE if one.signs]
SEE_PACKS = {PUBLISHER_ROLE, POLICY_ADMIN_ROLE}


def acts_signed(operation: Operation) -> set[str]:
    """The kinds of acts that an operation signs. A settlement is signed as what it is, and is of none."""
    route = operation.address[1].removeprefix("/")
    return {"runs.exported"} if route == "exports" else {one["kind"] for one in SENT[route][1] if "kind" in one}


def test_the_acts_of_an_operation_are_those_that_its_signer_makes_anew() -> None:
    """Else `ApiClient.act` could not compare what it is given to sign. Who exports, and who publishes, signs by a
    command.
    """
    routes = {one.address[1].removeprefix("/") for one in SIGNED}
    assert routes - {"exports"} == ACT_ROUTES.keys() - {"packs"}


@pytest.mark.parametrize("operation", SIGNED, ids=[one.name for one in SIGNED])
def test_a_governed_operation_is_for_the_role_of_its_acts(operation: Operation) -> None:
    """An act on a run that the signer may see needs none."""
    acts = acts_signed(operation)
    assert set(operation.roles) == (set() if acts <= OWN_RUN_ACTS else {ACT_ROLES[act] for act in acts})


def test_every_act_without_a_role_is_signed_by_an_operation() -> None:
    assert set().union(*map(acts_signed, SIGNED)) >= OWN_RUN_ACTS


@NAMED
def test_who_acts_or_audits_in_a_group_reads_it(operation: Operation) -> None:
    acting = {role for one in OPERATION_TABLE if one.group == operation.group and one.signs for role in one.roles}
    acting |= SEE_PACKS if operation.group in ("packs", "pins", "policies", "slots") else set()
    if not operation.signs:
        assert set(operation.roles) == (set() if operation.about is OF_RUN else acting | {AUDITOR_ROLE, OPERATOR_ROLE})
        assert operation.address[0] == "GET" or operation.name == "runs.replay", "what a POST does is signed"


def test_an_operation_that_names_nobody_is_on_a_run_alone() -> None:
    with pytest.raises(TypeError, match="who may ask"):
        Operation("facts.all", ("GET", "/all"), (), Paged, FactPage, list_facts)


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


@NAMED
def test_no_other_route_answers_the_address_of_an_operation(face: HttpFace, operation: Operation) -> None:
    """`GET /runs/oldest` would read the run `oldest`, because of `GET /runs/{run}`."""
    method, path = operation.address
    paths = {name: one for name, one in face.api.openapi()["paths"].items() if method.lower() in one}
    for address in (path, path + STATEMENT)[: 1 + bool(operation.signs)]:
        sent = PARAMETER.sub("x", f"/v1{address}")
        assert [one for one in paths if re.fullmatch(PARAMETER.sub("[^/]+", one), sent)] == [f"/v1{address}"]


@pytest.mark.parametrize("path", [one.address[1] for one in OPERATION_TABLE if one.is_paged])
def test_a_query_of_empty_names_is_none(face: HttpFace, path: str) -> None:
    path = path.replace("{run}", face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])
    more = "subject=customer:cus_77" if path == "/facts" else ""
    assert face.send("GET", f"/v1{path}?&&=&{more}", by=OPERATOR).status_code == 200
    unknown = face.send("GET", f"/v1{path}?limits=1&{more}", by=OPERATOR)
    assert (unknown.status_code, unknown.json()["errors"][0]["code"]) == (422, "unknown_parameter")


def test_one_body_has_one_model() -> None:
    bodies = list(operation_bodies())
    assert len({one.__name__ for one in bodies}) == len(bodies)
