"""An error of the server is the same error in the client: each goes through the real problem document."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any, get_args

import pytest

import contextos
from contextos.client.refusals import APPROVAL_REASONS, refusal_of
from contextos.contracts.envelopes.memory import RefusalReason
from contextos.errors import (
    ApprovalRefused,
    Conflict,
    ConflictingRequest,
    ContextOSError,
    Integrity,
    InvalidEnvelope,
    InvalidInput,
    LostReply,
    MalformedJson,
    NotFound,
    OtherEnvironment,
    Overloaded,
    Problem,
    ReplayMismatch,
    RequestRefused,
    SignatureInvalid,
    StoreRestored,
    Unavailable,
    UnfitAnswer,
    Untimely,
)
from contextos.server.problems import HttpProblem, _contextos_error, _http_error, not_found
from tests.attacks.test_f52_client import PROBLEM

FAULT = Problem("/request_id", "bad_id", "the id is none", "send another")


def through(error: Exception) -> ContextOSError:
    """What the client raises where the server raised `error`."""
    handled = _http_error if isinstance(error, HttpProblem) else _contextos_error
    request: Any = None
    answer = asyncio.run(handled(request, error))
    kind = answer.headers["content-type"]
    assert {"Content-Type": kind} == PROBLEM
    return refusal_of(answer.status_code, kind, answer.headers.get("retry-after"), bytes(answer.body))


@pytest.mark.parametrize("kind", [InvalidInput, MalformedJson, InvalidEnvelope, ConflictingRequest])
def test_an_invalid_input_has_its_class_and_its_problems(kind: type[InvalidInput]) -> None:
    found = through(kind(FAULT))
    assert type(found) is kind
    assert isinstance(found, InvalidInput)
    assert found.problems == (FAULT,)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotFound("there is no such run"), NotFound),
        (not_found(), NotFound),
        (Conflict("run"), Conflict),
        (SignatureInvalid("no key signed it"), SignatureInvalid),
        (Integrity("an entry was altered"), Integrity),
        (LostReply("the outcome is unknown"), LostReply),
        (ContextOSError("a defect"), ContextOSError),
        (HttpProblem(500, "defect", "the log has the reason"), ContextOSError),
        (ReplayMismatch(3, "run.received", "another body"), Integrity),
        (StoreRestored("an operator records it"), Unavailable),
        (HttpProblem(401, "unauthenticated", "send a token"), RequestRefused),
        (HttpProblem(415, "unsupported_media_type", "send JSON"), RequestRefused),
        (Untimely("run", 5), Conflict),
        (ApprovalRefused("not_approver", "not your role"), ApprovalRefused),
        (HttpProblem(403, "not_allowed", "this needs the role `auditor`"), RequestRefused),
        (HttpProblem(403, "csrf_token", "send it"), RequestRefused),
        (OtherEnvironment("`run_1`", "dev", "prod"), RequestRefused),
        (HttpProblem(409, "of_a_later_version", "not now"), RequestRefused),
    ],
)
def test_every_error_has_the_class_that_the_server_raised(error: Exception, kind: type[ContextOSError]) -> None:
    assert type(through(error)) is kind


def test_a_refused_approval_says_why() -> None:
    for reason in ("expired", "self_granted", "other_binding", "assertion_invalid"):
        found = through(ApprovalRefused(reason, "not so"))
        assert isinstance(found, ApprovalRefused)
        assert (found.reason, str(found)) == (reason, "not so")


def test_what_is_no_refused_approval_keeps_its_problem_document() -> None:
    found = through(HttpProblem(403, "not_allowed", "this needs the role `auditor`"))
    assert isinstance(found, RequestRefused)
    assert (found.status, found.reason, found.problem_type, found.title, found.detail) == (
        403,
        "not_allowed",
        "urn:contextos:problem:not_allowed",
        "Forbidden",
        "this needs the role `auditor`",
    )
    assert str(found) == found.detail


def test_a_reason_counts_for_an_approval_with_its_status_alone() -> None:
    assert type(through(HttpProblem(418, "expired", "not so"))) is RequestRefused


def test_the_reasons_of_refused_approvals_are_those_that_the_runtime_raises() -> None:
    raised = {
        one.args[0].value
        for path in Path(contextos.__file__).parent.rglob("*.py")
        for one in ast.walk(ast.parse(path.read_text()))
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "ApprovalRefused"
        if isinstance(one.args[0], ast.Constant)
    } | {*get_args(RefusalReason)}
    assert raised - {"not_allowed", "not_confirmed"} == APPROVAL_REASONS, "a role is missing; the command line alone"


def test_the_time_to_come_back_is_that_of_the_server() -> None:
    for error in (
        Unavailable("store", "it is slow", retry_after_ms=7_000),
        Overloaded("runs", "full", retry_after_ms=900),
    ):
        found = through(error)
        assert type(found) is type(error)
        assert isinstance(found, Unavailable)
        assert found.retry_after_ms == -(-error.retry_after_ms // 1_000) * 1_000


@pytest.mark.parametrize("stated", ["-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", "٣", "9" * 30, ""])
def test_a_time_that_is_no_number_of_seconds_is_a_second(stated: str) -> None:
    found = refusal_of(503, "text/html", stated, b"")
    assert isinstance(found, Unavailable)
    assert found.retry_after_ms == 1_000


def test_an_answer_of_something_in_front_of_the_server_is_typed() -> None:
    for status, kind in (
        (429, Unavailable),
        (503, Unavailable),
        (502, LostReply),
        (504, LostReply),
        (403, UnfitAnswer),
    ):
        assert type(refusal_of(status, "text/html", None, b"<html>")) is kind
