"""The OpenAPI document is what the API does: requests made from it get answers that it describes, and no 500."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode

from contextos.server import openapi
from contextos.server.assembly import routed_api
from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace
from tests.npm import locked_npm_folder, node_environment, npm_folder

pytestmark = pytest.mark.slow

EXAMPLES = 8
REDOCLY = Path(__file__).resolve().parents[2] / "redocly"
OPEN = ("/v1/health", "/v1/ready")
"""The routes that need no token. They have no parameters either, and so has `/metrics`."""
PEOPLE = [REQUESTER, LEAD, OPERATOR]
EXCLUDED = ("unsupported_method", "ignored_auth", "positive_data_acceptance", "negative_data_rejection")
"""What other tests check (401, 405), or what the document cannot say: most valid ids name nothing, and a token of
another JSON type is a text that is no token.
"""


SAYS_NO_SCHEMA = {
    # As `openapi.BEYOND_SCHEMA` says: how a body is written, what the texts of people hold, and the id of a request.
    *("int_type", "integer_too_large", "value_error", "no_idempotency_key", "conflicting_key", "secret"),
    *("hidden_character", "tag_character"),
    # As the model of the body says in words: exactly one of its members is there.
    "no_proof",
    # The text of a pack or of a graph is a document in a document.
    *("syntax", "not_an_object", "not_text"),
    # What the deployment has, and what happened before.
    *("unknown_cursor", "unknown_intent", "unknown_environment", "unknown_tool", "stale_version", "other_statements"),
    *("nothing_recorded", "not_now", "not_ended", "no_such_run", "not_compiled", "erased"),
}
"""Why the service refuses a request that fits the document."""


@schemathesis.serializer("application/jsonl")
def as_export(_context: Any, value: Any) -> bytes:
    """An export is bytes, which the service verifies."""
    return value if isinstance(value, bytes) else str(value).encode()


def operations(face: HttpFace) -> list[Any]:
    schema = schemathesis.openapi.from_dict(face.api.openapi())
    # A stream of a run that waits has no end: `routes/test_events.py` reads it.
    return [one for found in schema.get_all_operations() if not (one := found.ok()).path.endswith("/events")]


def exercise(face: HttpFace, url: str, operation: Any, mode: GenerationMode, run: str) -> set[int]:
    """Send generated requests to one operation; return the statuses of the answers, each of which fits the document."""
    label = f"{operation.method.upper()} {operation.path}"
    excluded = [one for one in schemathesis.checks.CHECKS.get_all() if one.__name__ in EXCLUDED]
    statuses: set[int] = set()

    @given(case=operation.as_strategy(generation_mode=mode), by=st.sampled_from(PEOPLE), known=st.booleans())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any, by: str, known: bool) -> None:
        if known and "run" in case.path_parameters:
            case.path_parameters["run"] = run
        answer = case.call(base_url=url, headers={"Authorization": f"Bearer {face.token(by)}"})
        statuses.add(answer.status_code)
        if mode is GenerationMode.POSITIVE and answer.status_code in (400, 422):
            refused = answer.json()
            codes = {one["code"] for one in refused.get("errors", ())} or {refused["code"]}
            # The nodes and edges of a graph, and a request that is tried, are open objects in the document.
            is_open = operation.path.startswith(("/v1/facts/load", "/v1/packs/sandbox"))
            assert codes <= SAYS_NO_SCHEMA or is_open, (label, answer.text)
        assert answer.status_code < 500, (label, answer.text)
        try:
            case.validate_response(answer, excluded_checks=excluded)
        except FailureGroup as group:
            raise AssertionError(f"{label}: {[str(one) for one in group.exceptions]}") from None

    send()
    return statuses


def test_every_answer_to_generated_requests_fits_the_document(face: HttpFace, url: str) -> None:
    load_all_checks()
    run, found = face.waiting_run(), operations(face)
    assert len(found) >= 12
    for operation in found:
        statuses = exercise(face, url, operation, GenerationMode.POSITIVE, run)
        if operation.path not in (*OPEN, "/metrics"):
            # Of a route without parameters nothing can be wrong.
            statuses |= exercise(face, url, operation, GenerationMode.NEGATIVE, run)
        # A run that waits has decided nothing; `tests/spec/test_flow.py` reads a decision.
        assert operation.path.endswith("/decision") or statuses - {404}, (
            f"{operation.path} answers 404 alone, so nothing was tested"
        )


def test_the_document_is_openapi_3_1_and_names_the_error_of_every_route(face: HttpFace) -> None:
    document = face.api.openapi()
    assert document["openapi"].startswith("3.1")
    for path, found in document["paths"].items():
        for method, operation in found.items():
            problem = operation["responses"]["default"]["content"]
            assert list(problem) == ["application/problem+json"], (method, path)
            assert bool(operation["security"]) is (path not in OPEN)
    assert document == face.anonymous("GET", "/v1/openapi.json").json()


def test_redocly_finds_no_error_in_the_document(face: HttpFace, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_bytes(face.anonymous("GET", "/v1/openapi.json").content)
    program = locked_npm_folder(REDOCLY) / "node_modules" / ".bin" / "redocly"
    node = node_environment(npm_folder(("node@22.23.3",)))
    quiet = {**node, "REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    command = [str(program), "lint", "openapi.json", "--format=json"]
    said = subprocess.run(command, cwd=tmp_path, env=quiet, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    found = json.loads(said.stdout)
    assert found["totals"]["errors"] == 0, found["problems"]
    # Every operation names its errors as `default`, which the rule does not count.
    assert {one["ruleId"] for one in found["problems"]} == {"operation-4xx-response"}


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("/v1/runs?aprover=user_finance_lead_77", "write `approver`"),
        ("/v1/runs/run_1/why?run=1", "use one of tool"),
        ("/v1/ready?deep=1", "leave it out"),
    ],
)
def test_a_parameter_that_a_route_does_not_have_is_refused(face: HttpFace, path: str, remedy: str) -> None:
    answer = face.send("GET", path)
    [said] = answer.json()["errors"]
    assert (answer.status_code, said["code"], said["remedy"]) == (422, "unknown_parameter", remedy)


def test_the_first_requests_of_a_server_make_one_document_together(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real = openapi.get_openapi
    monkeypatch.setattr(openapi, "get_openapi", lambda **named: made.append(named) or real(**named))
    api = routed_api()
    with ThreadPoolExecutor(4) as pool:
        documents = [one.result() for one in [pool.submit(api.openapi) for _ in range(4)]]
    assert all(one is documents[0] for one in documents)
    assert len(made) == 1
