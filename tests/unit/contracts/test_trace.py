"""W3C Trace Context and Baggage: what is read, what is refused, what goes out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.compiled import TraceHeaders
from contextos.contracts.trace import (
    MAX_BAGGAGE_BYTES,
    BaggageMember,
    TraceContext,
    Traceparent,
    child_headers,
    format_baggage,
    format_traceparent,
    format_tracestate,
    manifest_headers,
    parse_baggage,
    parse_traceparent,
    parse_tracestate,
    receive_trace,
    update_tracestate,
)
from contextos.errors import InvalidEnvelope
from tests.unit.contracts.seeds import example

TRACE_ID, SPAN_ID, FRESH = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "b9c7c989f97918e1"
GOOD = f"00-{TRACE_ID}-{SPAN_ID}-01"
SEED_STATE = "tenant=tenant_acme_prod,ctxpack=ctxpack.support@5.2.0"


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (GOOD, 1),
        ([GOOD], 1),
        (f" \t{GOOD}\t ", 1),
        (GOOD[:-2] + "00", 0),
        (GOOD[:-2] + "ff", 255),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01", 1),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01-what-the=future holds", 1),
        (f"01-{TRACE_ID}-{SPAN_ID}-03-", 3),
    ],
)
def test_a_valid_traceparent_is_read(header: str | list[str], flags: int) -> None:
    assert parse_traceparent(header) == Traceparent(TRACE_ID, SPAN_ID, flags)


def test_ids_of_digits_only_are_lower_case() -> None:
    assert parse_traceparent(f"00-{'1' * 32}-{'2' * 16}-01") == Traceparent("1" * 32, "2" * 16, 1)


@pytest.mark.parametrize(
    "header",
    [
        "",
        [],
        [GOOD, GOOD],
        f"{GOOD},{GOOD}",
        GOOD.upper(),
        GOOD + "\n",
        "\n" + GOOD,
        GOOD + "-",
        GOOD + "-00",
        GOOD + "0",
        GOOD[:-1],
        "\u00a0" + GOOD,
        "\x0b" + GOOD,
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID}-{SPAN_ID}-1",
        f"00-{TRACE_ID}-{SPAN_ID}-0A",
        f"00-{TRACE_ID.upper()}-{SPAN_ID}-01",
        f"0-{TRACE_ID}-{SPAN_ID}-01",
        f"00_{TRACE_ID}_{SPAN_ID}_01",
        f"cc-{TRACE_ID}-{SPAN_ID}-01x",
        f"cc-{TRACE_ID}-{SPAN_ID}",
        f"cc-{TRACE_ID}-{SPAN_ID}-01\n",
        f"cc-{TRACE_ID}-{SPAN_ID}-01-x\n",
        f"00-{TRACE_ID[:-1]}g-{SPAN_ID}-01",
        f"00-{TRACE_ID[:-1]}\u0661-{SPAN_ID}-01",
    ],
)
def test_anything_else_starts_a_new_trace(header: str | list[str]) -> None:
    assert parse_traceparent(header) is None


def test_flags_are_tested_by_bit() -> None:
    read = [parse_traceparent(GOOD[:-2] + flags) for flags in ("00", "01", "02", "03", "fe", "ff")]
    assert [parent and (parent.sampled, parent.random) for parent in read] == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
        (False, True),
        (True, True),
    ]


@given(st.integers(0, 255))
def test_unknown_flag_bits_go_out_as_zero_and_the_known_ones_are_kept(flags: int) -> None:
    sent = parse_traceparent(format_traceparent(TRACE_ID, FRESH, flags))
    read = Traceparent(TRACE_ID, FRESH, flags)
    assert sent is not None
    assert sent.flags < 4
    assert (sent.sampled, sent.random) == (read.sampled, read.random)


@pytest.mark.parametrize(("trace_id", "span_id"), [("0" * 32, FRESH), (TRACE_ID, "0" * 16), (TRACE_ID, FRESH + "\n")])
def test_an_id_that_no_reader_accepts_is_never_sent(trace_id: str, span_id: str) -> None:
    with pytest.raises(AssertionError):
        format_traceparent(trace_id, span_id, 1)


@pytest.mark.parametrize(
    ("header", "members"),
    [
        (SEED_STATE, (("tenant", "tenant_acme_prod"), ("ctxpack", "ctxpack.support@5.2.0"))),
        (["a=1", "b=2,c=3"], (("a", "1"), ("b", "2"), ("c", "3"))),
        ("a=1 \t, \tb=2,,\t,", (("a", "1"), ("b", "2"))),
        ("0a=1,t@v-x_y*/=2,@=3", None),
        ("0a=1,t@v-x_y*/=2", (("0a", "1"), ("t@v-x_y*/", "2"))),
        ("a=1,a=2,b=3", (("a", "1"), ("b", "3"))),
        ("a= x y", (("a", " x y"),)),
        ("k" * 256 + "=" + "v" * 256, (("k" * 256, "v" * 256),)),
        ("", ()),
        ("a=", None),
        ("=1", None),
        ("a", None),
        ("A=1", None),
        ("a =1", None),
        ("a=1=2", None),
        ("\u00e9=1", None),
        ("a=\u00e9", None),
        ("a=1\n", None),
        ("a=\x7f", None),
        ("k" * 257 + "=1", None),
        ("a=" + "v" * 257, None),
        ("b=2,a=1;\x00", None),
    ],
)
def test_tracestate_is_read_whole_or_not_at_all(
    header: str | list[str], members: tuple[tuple[str, str], ...] | None
) -> None:
    assert parse_tracestate(header) == (members or ())


def test_more_than_32_members_are_discarded() -> None:
    text = ",".join(f"k{index}=1" for index in range(33))
    assert parse_tracestate(text) == ()
    assert len(parse_tracestate(text.rpartition(",")[0])) == 32
    assert parse_tracestate("," * 100_000) == ()


def test_our_member_goes_left_and_the_others_keep_their_order() -> None:
    assert update_tracestate([("a", "1"), ("contextos", "old"), ("b", "2")], "new") == (
        ("contextos", "new"),
        ("a", "1"),
        ("b", "2"),
    )
    assert update_tracestate([], "new") == (("contextos", "new"),)


def test_over_32_members_the_right_most_go() -> None:
    kept = update_tracestate([(f"k{index}", "1") for index in range(32)], "v")
    assert len(kept) == 32
    assert kept[-1] == ("k30", "1")


def test_over_512_characters_the_large_members_go_first_and_then_the_right_most() -> None:
    small = [(f"k{index}", "x" * 40) for index in range(6)]
    kept = update_tracestate([("big", "y" * 126), *small, ("large", "y" * 250)], "v")
    assert kept == (("contextos", "v"), ("big", "y" * 126), *small)
    kept = update_tracestate([("edge", "y" * 123), *small, *small, *small], "v")
    assert len(format_tracestate(kept)) <= 512
    assert kept[:2] == (("contextos", "v"), ("edge", "y" * 123))


STATE_KEYS = st.from_regex(r"[a-z0-9][a-z0-9_\-*/@]{0,20}", fullmatch=True)
STATE_VALUES = st.from_regex(r"[!-+\--<>-~]{1,200}", fullmatch=True)


@given(st.lists(st.tuples(STATE_KEYS, STATE_VALUES), unique_by=lambda member: member[0], max_size=40))
def test_what_goes_out_is_read_back_within_the_limits(members: list[tuple[str, str]]) -> None:
    sent = update_tracestate(members, FRESH)
    assert parse_tracestate(format_tracestate(sent)) == sent
    assert sent[0] == ("contextos", FRESH)
    assert len(sent) <= 32
    assert len(format_tracestate(sent)) <= 512
    assert [member for member in members if member in sent[1:]] == list(sent[1:])


@pytest.mark.parametrize(
    ("header", "members"),
    [
        ("a=1,b=2", [BaggageMember("a", "1"), BaggageMember("b", "2")]),
        (["a=1", "b=2"], [BaggageMember("a", "1"), BaggageMember("b", "2")]),
        (" a\t=\t1 ;p ; q = 2 , b=2", [BaggageMember("a", "1", ("p", "q = 2")), BaggageMember("b", "2")]),
        ("a=1,a=2", [BaggageMember("a", "1"), BaggageMember("a", "2")]),
        ("a=x=y", [BaggageMember("a", "x=y")]),
        ("a=", [BaggageMember("a", "")]),
        ("a=%E2%82%AC%20%2C", [BaggageMember("a", "\u20ac ,")]),
        ("a=%FF", [BaggageMember("a", "\ufffd")]),
        ("a=1;p=%20", [BaggageMember("a", "1", ("p=%20",))]),
        ('a=1,b="q",c=x y,d=\\,e,=f,g h=1,i=1;,j=\u20ac,z=9', [BaggageMember("a", "1"), BaggageMember("z", "9")]),
        ("a=1\n", []),
        ("", []),
    ],
)
def test_baggage_is_read_member_by_member(header: str | list[str], members: list[BaggageMember]) -> None:
    assert list(parse_baggage(header)) == members


def test_baggage_keeps_64_members_and_8192_bytes_and_no_part_of_a_member() -> None:
    many = ",".join(f"k{index}=1" for index in range(70))
    assert len(parse_baggage(many)) == len(parse_baggage(format_baggage(parse_baggage(many) * 2))) == 64
    exact = "a=" + "x" * (MAX_BAGGAGE_BYTES - 2)
    assert parse_baggage(exact)[0].value == exact[2:]
    assert parse_baggage(exact + "x") == ()
    half = BaggageMember("a", "x" * (MAX_BAGGAGE_BYTES // 2))
    assert format_baggage([half, half]) == f"a={half.value}"
    assert format_baggage([BaggageMember("a", "\u20ac" * 1000)]) == ""


@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z!#.~-]{1,8}", fullmatch=True), st.text(st.characters(exclude_categories=["Cs"]))),
        max_size=20,
    )
)
def test_any_text_travels_as_baggage_and_comes_back(pairs: list[tuple[str, str]]) -> None:
    members = [BaggageMember(key, value) for key, value in pairs]
    sent = format_baggage(members)
    assert sent.isascii()
    assert list(parse_baggage(sent)) == members


def test_a_key_that_is_no_token_is_never_sent() -> None:
    with pytest.raises(AssertionError):
        format_baggage([BaggageMember("a b", "1")])


def test_headers_of_a_caller_become_its_position_and_stay_verbatim() -> None:
    trace = receive_trace(
        [("TraceParent", GOOD), ("x", "y"), ("tracestate", "a=1"), ("TRACESTATE", SEED_STATE), ("Baggage", "k=%20;p")]
    )
    assert trace is not None
    assert trace.to_json() == {
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "trace_flags": "01",
        "tracestate": f"a=1,{SEED_STATE}",
        "baggage": "k=%20;p",
    }


@pytest.mark.parametrize(
    "headers", [[], [("tracestate", "a=1")], [("traceparent", GOOD), ("Traceparent", GOOD)], [("traceparent", "x")]]
)
def test_without_one_valid_traceparent_nothing_counts(headers: list[tuple[str, str]]) -> None:
    assert receive_trace(headers) is None


@pytest.mark.parametrize("state", ["a=\x00", "a=\u00e9", "a=" + "x" * 9000])
def test_a_bad_tracestate_never_invalidates_traceparent(state: str) -> None:
    trace = receive_trace([("traceparent", GOOD), ("tracestate", state), ("baggage", state)])
    assert trace is not None
    assert (trace.tracestate, trace.baggage) == (None, None)
    trace = receive_trace([("traceparent", GOOD), ("tracestate", "NOT VALID")])
    assert trace is not None
    assert child_headers(trace, FRESH)["tracestate"] == f"contextos={FRESH}"


CALLER = TraceContext(
    trace_id=TRACE_ID,
    span_id=SPAN_ID,
    trace_flags="ff",
    tracestate=SEED_STATE,
    baggage="run_id=forged,k=v%2C;p, run_id=again",
)


def test_an_outbound_call_inside_the_domain_carries_our_position_and_our_values() -> None:
    assert child_headers(CALLER, FRESH, baggage={"run_id": "run_1", "note": "a b"}) == {
        "traceparent": f"00-{TRACE_ID}-{FRESH}-03",
        "tracestate": f"contextos={FRESH},{SEED_STATE}",
        "baggage": "run_id=run_1,note=a%20b,k=v%2C;p",
    }


def test_an_external_callee_gets_no_baggage_and_nobody_elses_state() -> None:
    assert child_headers(CALLER, FRESH, baggage={"run_id": "run_1"}, external=True) == {
        "traceparent": f"00-{TRACE_ID}-{FRESH}-03",
        "tracestate": f"contextos={FRESH}",
    }


def test_a_call_without_values_sends_no_empty_baggage() -> None:
    assert "baggage" not in child_headers(TraceContext(trace_id=TRACE_ID, span_id=SPAN_ID), FRESH)


def test_the_trace_of_the_seeds_is_read() -> None:
    raw = f'{{"trace_id":"{TRACE_ID}","span_id":"{SPAN_ID}","trace_flags":"01"}}'
    assert parse(TraceContext, raw).sealed() == TraceContext(trace_id=TRACE_ID, span_id=SPAN_ID, trace_flags="01")


@pytest.mark.parametrize(
    "change",
    [
        {"trace_id": "0" * 32},
        {"span_id": None},
        {"trace_flags": "1"},
        {"trace_flags": "01\n"},
        {"parent": "x"},
        {"tracestate": "a=1\n"},
    ],
)
def test_a_trace_that_does_not_fit_is_refused(change: dict[str, str | None]) -> None:
    good: dict[str, str | None] = {"trace_id": TRACE_ID, "span_id": SPAN_ID}
    with pytest.raises(InvalidEnvelope):
        parse(TraceContext, good | change)
    with pytest.raises(ValidationError):
        TraceContext.model_validate(good | change)


STATE = {"tenant": "tenant_acme_prod", "ctxpack": "ctxpack.support@5.2.0"}
RUN = {"session_id": "sess_42f1", "decision_id": "support.refund.execute", "run_id": "run_a1b2c3d4e5f60718"}


def test_a_manifest_names_the_run_as_the_specification_shows_it() -> None:
    shown = example("trace_context")["trace_context"]
    caller = TraceContext(trace_id=TRACE_ID, span_id="b9c7c989f97918e1", trace_flags="01")
    assert manifest_headers(caller, STATE, RUN) == shown


@pytest.mark.parametrize(
    ("sent", "state", "baggage"),
    [
        ({"tracestate": "vendor=1", "baggage": "team=a"}, ",vendor=1", ",team=a"),
        ({"tracestate": "tenant=other,ctxpack=x,v=1", "baggage": "run_id=other,team=a,run_id=b"}, ",v=1", ",team=a"),
        ({"tracestate": "v=1,,not a member", "baggage": "=,team=a,\t"}, "", ",team=a"),
        ({"tracestate": "", "baggage": ""}, "", ""),
    ],
)
def test_behind_our_names_is_what_the_caller_sent_that_is_well_formed_and_has_none_of_them(
    sent: dict[str, str], state: str, baggage: str
) -> None:
    caller = TraceContext(trace_id=TRACE_ID, span_id=SPAN_ID, **sent)
    kept, ours = (
        manifest_headers(caller, STATE, RUN),
        manifest_headers(TraceContext(trace_id=TRACE_ID, span_id=SPAN_ID), STATE, RUN),
    )
    assert (kept["tracestate"], kept["baggage"]) == (ours["tracestate"] + state, ours["baggage"] + baggage)


def test_whatever_a_caller_sends_a_manifest_fits_its_contract_and_our_names_are_whole() -> None:
    caller = TraceContext(
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        tracestate=",".join(f"k{number}={'y' * 250}" for number in range(32)),
        baggage=",".join(f"k{number}={'y' * 120}" for number in range(64)),
    )
    long = {"tenant": "t" * 128, "ctxpack": "p" * 100 + "@1.2.3"}
    kept = manifest_headers(caller, long, {"session_id": "s" * 128, "run_id": "run_1"})
    TraceHeaders.model_validate(kept)
    assert kept["tracestate"].startswith(f"tenant={long['tenant']},ctxpack={long['ctxpack']},k0=")
    assert kept["baggage"].startswith(f"session_id={'s' * 128},run_id=run_1,k0=")
