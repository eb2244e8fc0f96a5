"""Every error of ContextOS has a status, a stable code, and a document that says what to do."""

from __future__ import annotations

import inspect

import pytest

from contextos import errors
from contextos.errors import (
    ApprovalRefused,
    CircuitOpen,
    ClockOff,
    Conflict,
    ConflictingRequest,
    ContextOSError,
    Integrity,
    InvalidInput,
    LostReply,
    MalformedJson,
    NotFound,
    OtherEnvironment,
    Overloaded,
    Problem,
    StoreRestored,
    Unavailable,
)
from contextos.server.problems import IDENTITY_REFUSED, STATUSES, TOO_LATE, status_of
from tests.http_face import HttpFace

BAD = Problem("/mode", "bad", "the mode is bad", "send another")
EXPECTED = [
    (MalformedJson(BAD), 400),
    (InvalidInput(BAD), 422),
    (InvalidInput(Problem("/user/user_id", IDENTITY_REFUSED, "not yours")), 403),
    (ConflictingRequest(BAD), 422),
    (NotFound("there is no such run"), 404),
    (ApprovalRefused("not_approver", "no"), 403),
    *((ApprovalRefused(reason, "too late"), 409) for reason in sorted(TOO_LATE)),
    (Conflict("lease"), 409),
    (OtherEnvironment("`run_1`", "dev", "prod"), 409),
    (Overloaded("tenant", "full"), 429),
    (Unavailable("store", "no answer"), 503),
    (ClockOff(9_000_000, 5_000_000), 503),
    (CircuitOpen("pay", 1, 1_500), 503),
    (StoreRestored("restored"), 503),
    (LostReply("sent"), 502),
    (Integrity("altered"), 500),
]


@pytest.mark.parametrize(("error", "status"), EXPECTED, ids=lambda one: getattr(one, "code", one))
def test_an_error_has_the_status_of_its_kind(error: ContextOSError, status: int) -> None:
    assert status_of(error) == status


def test_every_class_of_error_has_a_status_of_its_own_or_of_its_base() -> None:
    classes = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, ContextOSError)]
    assert len(classes) > 20
    assert all(any(base in STATUSES for base in one.__mro__) for one in classes)


@pytest.mark.parametrize(("error", "status"), EXPECTED, ids=lambda one: getattr(one, "code", one))
def test_an_error_of_the_application_is_a_problem_document(
    face: HttpFace,
    error: ContextOSError,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("contextos.service.runs.Runs.list", fails)
    answer = face.send("GET", "/v1/runs")
    document = answer.json()
    assert (answer.status_code, document["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    expected = error.reason if isinstance(error, ApprovalRefused) else error.code
    assert document["code"] == expected
    if isinstance(error, InvalidInput):
        assert [one["code"] for one in document["errors"]] == [one.code for one in error.problems]
    if isinstance(error, OtherEnvironment):
        # To wait does not help, and what the server serves and how it is set is the operator's.
        assert "retry-after" not in answer.headers
        assert "of another environment" in document["detail"]
        assert "run_1" not in document["detail"]
        assert any("`run_1` is of the environment `dev`" in one.getMessage() for one in caplog.records), (
            "the log says which one"
        )
    elif isinstance(error, Unavailable):
        assert int(answer.headers["retry-after"]) * 1000 >= error.retry_after_ms
    if status >= 500:
        assert str(error) not in document["detail"]
