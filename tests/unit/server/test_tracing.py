"""`trace_of`: whose trace goes on. The cases of headers are in `tests/attacks/test_e41_trace_context.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.trace import TraceContext
from contextos.server.tracing import trace_of
from contextos.trust.identity.callers import Caller
from tests.http_face import HttpFace

PERSON = Caller(
    kind="user",
    tenant_id="t",
    subject="ana",
    issuer="i",
    agent_ids=None,
    roles=(),
    scopes=(),
    expires_at=1,
    token_digest="",
)
WORKLOAD = replace(PERSON, kind="workload")
HEADER = [("traceparent", f"00-{'1' * 32}-{'2' * 16}-01")]
STATED = TraceContext(trace_id="3" * 32, span_id="4" * 16, trace_flags="01")


@pytest.mark.parametrize(
    ("headers", "stated", "trace_id"),
    [
        (HEADER, None, "1" * 32),
        (HEADER, STATED, "1" * 32),
        ([], STATED, "3" * 32),
        ([("traceparent", "x")], STATED, "3" * 32),
    ],
)
def test_headers_count_before_a_body(face: HttpFace, headers: Any, stated: Any, trace_id: str) -> None:
    for caller in (WORKLOAD, PERSON):
        assert trace_of(face.app, caller, headers, stated).trace_id == trace_id


def test_only_the_trace_of_a_workload_goes_on_where_the_settings_say_so(face: HttpFace) -> None:
    before = face.app.settings
    face.app.settings = replace(before, traces_from="workloads")
    try:
        assert trace_of(face.app, WORKLOAD, HEADER).trace_id == "1" * 32
        begun = trace_of(face.app, PERSON, HEADER)
    finally:
        face.app.settings = before
    assert begun.link is not None
    assert (begun.link.trace_id, begun.trace_id == "1" * 32) == ("1" * 32, False)


def test_of_a_person_only_the_ids_and_the_flags_go_on(face: HttpFace) -> None:
    stated = STATED.model_copy(update={"tracestate": "a=1", "baggage": "k=v"})
    assert trace_of(face.app, PERSON, [], stated) == STATED
    assert trace_of(face.app, WORKLOAD, [], stated) == stated


def test_without_a_caller_a_trace_begins_and_links_to_nothing(face: HttpFace) -> None:
    first, second = trace_of(face.app, PERSON, []), trace_of(face.app, WORKLOAD, [])
    assert (first.link, second.link) == (None, None)
    assert first.trace_id != second.trace_id
