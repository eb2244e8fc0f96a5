"""The OpenAPI document is what the API does: requests made from it get answers that it describes, and no 500."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode

from contextos.http_api import openapi
from contextos.http_api.assembly import routed_api
from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace

pytestmark = pytest.mark.slow

EXAMPLES = 8
OPEN = ("/v1/health", "/v1/ready")
"""The routes that need no token. They have no parameters either, and so has `/metrics`."""
PEOPLE = [REQUESTER, LEAD, OPERATOR]
EXCLUDED = ("unsupported_method", "ignored_auth", "positive_data_acceptance", "negative_data_rejection")
"""What other tests check (401, 405), or what the document cannot say: most valid ids name nothing, and a token of
another JSON type is a text that is no token.
"""


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
            assert bool(operation.get("security")) is (path not in OPEN)
    assert document == face.anonymous("GET", "/v1/openapi.json").json()


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
