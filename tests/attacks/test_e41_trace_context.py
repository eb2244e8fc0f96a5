"""Trace headers of callers: the cases of the W3C test suite at the HTTP edge, and what a caller gains by them.

The trace of every caller goes on, and nothing is decided by it: who sends the trace id of another tenant reads nothing
of that tenant, and no share of traces hides a run because of its trace id. Of a person only the ids and the flags go
on. With `traces_from = "workloads"` a person chooses no trace id of ours at all.
Source: W3C trace-context repository, `test/test.py` (the names of the cases are its own); W3C Baggage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import CallContext
from contextos.contracts.trace import (
    MAX_BAGGAGE_BYTES,
    MAX_BAGGAGE_MEMBERS,
    MAX_STATE_CHARS,
    MAX_STATE_MEMBERS,
    parse_baggage,
    parse_traceparent,
    parse_tracestate,
)
from contextos.workspace.logins.development_tokens import development_token
from tests.http_face import OTHER_TENANT, TENANT, HttpFace, http_face

TRACE, SPAN = "12345678901234567890123456789012", "1234567890123456"
GOOD = f"00-{TRACE}-{SPAN}-01"
Headers = list[tuple[str, str]]


class Listener:
    """An adapter in front of the one of the example, which keeps the trace headers of each call."""

    def __init__(self, inner: Any, heard: list[dict[str, str]]) -> None:
        self._inner, self._heard = inner, heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> Any:
        self._heard.append(dict(context.headers()))
        return await self._inner.call(capability, args, context)


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("traces")) as made:
        yield made


@pytest.fixture
def heard(face: HttpFace) -> Iterator[list[dict[str, str]]]:
    """The trace headers of the calls that left the runtime."""
    ports, found = face.app.deployment.ports, []
    listening = {name: Listener(one, found) for name, one in ports.adapters(TENANT).items()}
    face.app.deployment.ports = replace(ports, adapters=lambda _tenant: listening)
    yield found
    face.app.deployment.ports = ports


@pytest.fixture(scope="module")
def workload(face: HttpFace) -> str:
    """A token of the agent itself, under no user."""
    made = development_token(
        face.app.settings, face.app.deployment.ports, TENANT, user=None, agent="agt_support", delegation=None, ttl_s=600
    )
    return str(face.call(made)[0])


def sent(face: HttpFace, headers: Headers, token: str | None = None, **changes: Any) -> tuple[str, dict[str, Any]]:
    """Send a request with these headers and no trace in its body. Returns its run, and the trace that is on record."""
    body = {**face.request(), **changes}
    if "trace" not in changes:
        del body["trace"]
    token = token or face.token(body["user"]["user_id"])
    raw = [(name.encode(), value.encode("latin-1")) for name, value in [("Authorization", f"Bearer {token}"), *headers]]
    answer = face.call(face.client.request("POST", "/v1/runs", json=body, headers=raw))
    assert answer.status_code == 201, answer.text
    run = answer.json()["run_id"]
    [received] = face.call(face.app.stores.tenant(TENANT).read(run, limit=1))
    trace = read_body(received)["request"]["trace"]
    assert answer.json()["record"]["trace_id"] == trace["trace_id"], "what is recorded is what is used"
    return run, trace


CONTINUED = {
    "test_both_traceparent_and_tracestate_missing": None,
    "test_traceparent_included_tracestate_missing": [("traceparent", GOOD)],
    "test_traceparent_header_name": [("Traceparent", GOOD), ("TraceState", "a=1")],
    "test_traceparent_header_name_valid_casing": [("TraceParent", GOOD)],
    "test_traceparent_version_0xcc": [("traceparent", f"cc-{TRACE}-{SPAN}-01")],
    "test_traceparent_version_0xcc_with_more": [("traceparent", f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like")],
    "test_traceparent_ows_handling": [("traceparent", f" \t {GOOD} \t")],
    "test_tracestate_included_traceparent_included": [
        ("traceparent", GOOD),
        ("tracestate", "foo=1"),
        ("tracestate", "bar=2"),
    ],
}
"""Headers under which the trace goes on."""

RESTARTED = {
    "test_traceparent_duplicated": [("traceparent", GOOD), ("traceparent", GOOD)],
    "test_traceparent_duplicated_with_other": [("traceparent", GOOD), ("traceparent", GOOD.replace("1234", "4321"))],
    "test_multiple_header_in_one": [("traceparent", f"{GOOD},{GOOD}")],
    "test_traceparent_header_name_with_dash": [("trace-parent", GOOD)],
    "test_traceparent_header_name_with_dot": [("trace.parent", GOOD)],
    "test_traceparent_version_0x00_with_more": [("traceparent", f"{GOOD}.")],
    "test_traceparent_version_0x00_with_more_dash": [("traceparent", f"{GOOD}-what-the-future-will-be-like")],
    "test_traceparent_version_0xcc_with_dot": [("traceparent", f"cc-{TRACE}-{SPAN}-01.what")],
    "test_traceparent_version_0xff": [("traceparent", f"ff-{TRACE}-{SPAN}-01")],
    "test_traceparent_version_illegal_characters": [("traceparent", f".0-{TRACE}-{SPAN}-01")],
    "test_traceparent_version_too_long": [("traceparent", f"000-{TRACE}-{SPAN}-01")],
    "test_traceparent_version_too_short": [("traceparent", f"0-{TRACE}-{SPAN}-01")],
    "test_traceparent_trace_id_all_zero": [("traceparent", f"00-{'0' * 32}-{SPAN}-01")],
    "test_traceparent_trace_id_illegal_characters": [("traceparent", f"00-.{TRACE[1:]}-{SPAN}-01")],
    "test_traceparent_trace_id_too_long": [("traceparent", f"00-{TRACE}1-{SPAN}-01")],
    "test_traceparent_trace_id_too_short": [("traceparent", f"00-{TRACE[:-1]}-{SPAN}-01")],
    "test_traceparent_parent_id_all_zero": [("traceparent", f"00-{TRACE}-{'0' * 16}-01")],
    "test_traceparent_parent_id_illegal_characters": [("traceparent", f"00-{TRACE}-.{SPAN[1:]}-01")],
    "test_traceparent_parent_id_too_long": [("traceparent", f"00-{TRACE}-{SPAN}1-01")],
    "test_traceparent_parent_id_too_short": [("traceparent", f"00-{TRACE}-{SPAN[:-1]}-01")],
    "test_traceparent_trace_flags_illegal_characters": [("traceparent", f"00-{TRACE}-{SPAN}-.0")],
    "test_traceparent_trace_flags_too_long": [("traceparent", f"00-{TRACE}-{SPAN}-001")],
    "test_traceparent_trace_flags_too_short": [("traceparent", f"00-{TRACE}-{SPAN}-1")],
    "test_traceparent_upper_case": [("traceparent", f"00-{'A' * 32}-{SPAN}-01")],
    "test_tracestate_included_traceparent_missing": [("tracestate", "foo=1"), ("tracestate", "bar=2")],
}
"""Headers after which the trace begins anew, and a tracestate without a parent is dropped."""


@pytest.mark.parametrize("case", [name for name, headers in CONTINUED.items() if headers])
def test_the_trace_of_a_workload_goes_on(face: HttpFace, workload: str, heard: list[Any], case: str) -> None:
    run, trace = sent(face, CONTINUED[case] or [], workload)
    assert (trace["trace_id"], trace["span_id"]) == (TRACE, SPAN)
    assert heard
    for one in heard:
        parent = parse_traceparent(one["traceparent"])
        assert parent is not None
        assert (parent.trace_id, parent.sampled) == (TRACE, True)
        assert parent.parent_id != SPAN
        assert one["traceparent"].startswith("00-"), "it is written in the version that we know"
    assert len({one["traceparent"] for one in heard}) == len(heard), "each call is a span of its own"
    assert run not in json.dumps(trace)


@pytest.mark.parametrize("case", RESTARTED)
def test_what_is_no_trace_begins_a_new_one(face: HttpFace, workload: str, heard: list[Any], case: str) -> None:
    _, trace = sent(face, RESTARTED[case], workload)
    assert trace["trace_id"] != TRACE
    assert not {"link", "tracestate", "baggage"} & trace.keys()
    assert {parse_traceparent(one["traceparent"]).trace_id for one in heard} == {trace["trace_id"]}  # type: ignore[union-attr]
    assert all(parse_tracestate(one["tracestate"])[0][0] == "contextos" for one in heard)
    assert all(len(parse_tracestate(one["tracestate"])) == 1 for one in heard)


def test_two_requests_without_a_trace_share_none(face: HttpFace, workload: str) -> None:
    assert sent(face, [], workload)[1]["trace_id"] != sent(face, [], workload)[1]["trace_id"]


def members(count: int, size: int = 1) -> str:
    return ",".join(f"bar{number:02}={'t' * size}" for number in range(count))


STATES: dict[str, tuple[list[str], list[str] | None]] = {
    "test_tracestate_multiple_headers_different_keys": (["foo=1", "bar=2"], ["foo", "bar"]),
    "test_tracestate_duplicated_keys": (["foo=1", "foo=2"], ["foo"]),
    "test_tracestate_empty_header": (["", "foo=1", ""], ["foo"]),
    "test_tracestate_ows_handling": (["foo=1 \t , \t bar=2, \t baz=3"], ["foo", "bar", "baz"]),
    "test_tracestate_all_allowed_characters": (
        ["abcdefghijklmnopqrstuvwxyz0123456789_-*/= !\"#$%&'()*+-./"],
        ["abcdefghijklmnopqrstuvwxyz0123456789_-*/"],
    ),
    "test_tracestate_key_illegal_characters": (["foo =1"], None),
    "test_tracestate_key_illegal_vendor_format": (["foo=1,bar@@=2"], ["foo", "bar@@"]),
    "test_tracestate_member_count_limit": ([members(32)], [f"bar{number:02}" for number in range(31)]),
    "test_tracestate_member_count_over_limit": ([members(33)], None),
    "test_tracestate_key_length_limit": (["z" * 256 + "=1,foo=2"], ["z" * 256, "foo"]),
    "a state of more than 512 characters": (["foo=1,large=" + "v" * 240 + ",other=" + "v" * 256], ["foo", "large"]),
    "test_tracestate_key_length_over_limit": (["z" * 257 + "=1,foo=2"], None),
    "test_tracestate_value_illegal_characters": (["foo=bar=baz"], None),
    "test_tracestate_without_value": (["foo"], None),
}


@pytest.mark.parametrize("case", STATES)
def test_the_tracestate_of_a_workload_goes_on_behind_our_member(
    face: HttpFace, workload: str, heard: list[Any], case: str
) -> None:
    values, kept = STATES[case]
    _, trace = sent(face, [("traceparent", GOOD), *(("tracestate", one) for one in values)], workload)
    assert trace["trace_id"] == TRACE, "the parent counts whatever the state is"
    assert heard
    for one in heard:
        found = parse_tracestate(one["tracestate"])
        assert (found[0][0], [key for key, _ in found[1:]]) == ("contextos", kept or []), one
        assert len(found) <= MAX_STATE_MEMBERS
        assert len(one["tracestate"]) <= MAX_STATE_CHARS


BAGGAGE = {
    "an authority": "role=operator,tenant_id=tenant_other,user_id=user_operator_5",
    "our own names": "run_id=run_0000000000000000,session_id=ses_other,decision_id=dec_1",
    "too many": ",".join(f"k{number}=v" for number in range(500)),
    "too long": "k=" + "v" * 9_000,
    "malformed": 'k=v\x01,=,;;,"q"=1,k2=\u00e9',
    "another header": "k=v%0d%0aX-Injected:%201",
}


@pytest.mark.parametrize("case", BAGGAGE)
def test_baggage_of_a_workload_is_bounded_and_decides_nothing(
    face: HttpFace, workload: str, heard: list[Any], case: str
) -> None:
    run, trace = sent(face, [("traceparent", GOOD), ("baggage", BAGGAGE[case])], workload)
    plain, _ = sent(face, [("traceparent", GOOD)], workload)
    views = [face.call(face.app.deployment.view(TENANT, one)).record for one in (run, plain)]
    assert views[0] is not None
    assert views[1] is not None
    assert views[0]["outcome"] == views[1]["outcome"]
    assert len(parse_baggage(trace.get("baggage", ""))) <= MAX_BAGGAGE_MEMBERS
    for one in heard:
        members = parse_baggage(one.get("baggage", ""))
        named = {member.key: member.value for member in members}
        assert len(members) <= MAX_BAGGAGE_MEMBERS
        assert len(one.get("baggage", "")) <= MAX_BAGGAGE_BYTES
        assert "\r" not in one.get("baggage", "")
        assert named.get("run_id", run) in (run, plain)


PERSONS_HEADERS = [("traceparent", GOOD), ("tracestate", "evil=1"), ("baggage", "stolen=secret-of-somebody")]
PERSONS_BODY = {
    "trace_id": TRACE,
    "span_id": SPAN,
    "trace_flags": "01",
    "tracestate": "evil=1",
    "baggage": "stolen=secret-of-somebody",
}


@pytest.fixture
def workloads_only(face: HttpFace) -> Iterator[None]:
    """The setting for front doors that are open to anybody."""
    before = face.app.settings
    face.app.settings = replace(before, traces_from="workloads")
    yield
    face.app.settings = before


def nothing_of_it(face: HttpFace, run: str, heard: list[dict[str, str]]) -> None:
    """Nothing but the ids of what a person sent is on record, or reached a service behind ours."""
    assert heard
    entries = face.call(face.app.stores.tenant(TENANT).read(run))
    assert b"secret-of-somebody" not in b"".join(one.body or b"" for one in entries), "it is not recorded either"
    for one in heard:
        assert "evil" not in json.dumps(one)
        assert "stolen" not in json.dumps(one)


@pytest.mark.parametrize("place", ["headers", "body", "both"])
def test_the_trace_of_a_person_goes_on_and_carries_nothing_through(
    face: HttpFace, heard: list[Any], place: str
) -> None:
    changes = {"trace": PERSONS_BODY} if place != "headers" else {}
    run, trace = sent(face, PERSONS_HEADERS if place != "body" else [], **changes)
    assert trace == {"trace_id": TRACE, "span_id": SPAN, "trace_flags": "01"}
    nothing_of_it(face, run, heard)
    for one in heard:
        parent = parse_traceparent(one["traceparent"])
        assert parent is not None
        assert parent.trace_id == TRACE
        assert parent.parent_id != SPAN


@pytest.mark.parametrize("place", ["headers", "body", "both"])
def test_a_person_chooses_no_trace_id_of_ours_and_carries_nothing_through(
    face: HttpFace, workloads_only: None, heard: list[Any], place: str
) -> None:
    changes = {"trace": PERSONS_BODY} if place != "headers" else {}
    run, trace = sent(face, PERSONS_HEADERS if place != "body" else [], **changes)
    assert trace["trace_id"] != TRACE
    assert trace["link"] == {"trace_id": TRACE, "span_id": SPAN}
    assert not {"tracestate", "baggage"} & trace.keys()
    nothing_of_it(face, run, heard)
    assert all(TRACE not in json.dumps(one) for one in heard)


def test_a_person_joins_no_trace_of_another_tenant_where_only_workloads_may(
    face: HttpFace, workloads_only: None, workload: str
) -> None:
    _, victim = sent(face, [], workload)
    parent = f"00-{victim['trace_id']}-{victim['span_id']}-01"
    _, trace = sent(face, [("traceparent", parent)])
    assert trace["trace_id"] != victim["trace_id"]
    assert face.token("usr_771", OTHER_TENANT), "the ids of people are the same in both tenants, and so decide nothing"


def test_the_trace_of_a_workload_goes_on_where_only_workloads_may(
    face: HttpFace, workloads_only: None, workload: str
) -> None:
    assert sent(face, [("traceparent", GOOD)], workload)[1]["trace_id"] == TRACE


@pytest.mark.parametrize("case", RESTARTED)
def test_what_is_no_trace_of_a_person_begins_a_new_one(face: HttpFace, heard: list[Any], case: str) -> None:
    _, trace = sent(face, RESTARTED[case])
    assert trace["trace_id"] != TRACE
    assert not {"link", "tracestate", "baggage"} & trace.keys()


def test_who_sends_the_trace_id_of_a_run_reads_nothing_of_it(face: HttpFace, workload: str) -> None:
    """The same people are in both tenants. Neither the run, nor its spans, nor a list has anything of the victim's."""
    victim, theirs = sent(face, [], workload)
    headers = {"traceparent": f"00-{theirs['trace_id']}-{theirs['span_id']}-01"}
    run, own = sent(face, list(headers.items()), face.token("usr_771"))
    assert own["trace_id"] == theirs["trace_id"]
    assert run != victim
    for path in (f"/v1/runs/{victim}", f"/v1/runs/{victim}/timeline", f"/v1/runs/{theirs['trace_id']}"):
        answer = face.send("GET", path, tenant=OTHER_TENANT, headers=headers)
        assert (answer.status_code, victim in answer.text) == (404, False), path
    listed = face.send("GET", "/v1/runs", tenant=OTHER_TENANT, headers=headers)
    assert (listed.status_code, listed.json()["items"]) == (200, [])


def test_a_caller_that_does_not_record_its_trace_hides_nothing_of_the_run(face: HttpFace, heard: list[Any]) -> None:
    plain, _ = sent(face, [("traceparent", GOOD)])
    run, trace = sent(face, [("traceparent", f"00-{TRACE}-{SPAN}-00")])
    assert trace["trace_flags"] == "00"
    views = [face.call(face.app.deployment.view(TENANT, one)) for one in (run, plain)]
    assert views[0].record is not None
    assert views[1].record is not None
    assert views[0].record["outcome"] == views[1].record["outcome"]


def test_a_hundred_members_of_a_state_are_dropped_and_the_parent_counts(
    face: HttpFace, workload: str, heard: list[Any]
) -> None:
    _, trace = sent(face, [("traceparent", GOOD), ("tracestate", members(100))], workload)
    assert trace["trace_id"] == TRACE
    assert "tracestate" not in trace
    assert all(len(parse_tracestate(one["tracestate"])) == 1 for one in heard)


def test_the_same_request_in_another_trace_is_the_same_run_in_its_first_one(face: HttpFace, workload: str) -> None:
    body = face.request()
    answers = []
    for parent in (GOOD, f"00-{'a' * 32}-{SPAN}-01"):
        headers = {"Authorization": f"Bearer {workload}", "traceparent": parent}
        answers.append(face.call(face.client.request("POST", "/v1/runs", json=body, headers=headers)).json())
    assert answers[0] == answers[1]
    assert answers[0]["record"]["trace_id"] == TRACE
