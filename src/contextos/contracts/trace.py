"""W3C Trace Context (level 2) and Baggage: read the headers of a caller, and make those of an outbound call.

No decision uses these headers: tenant and authority are never read from baggage or tracestate. `TraceContext` keeps
the caller's headers verbatim. An outbound call gets a new parent id and one tracestate member of ContextOS. A callee
outside the trust domain gets no baggage and no other tracestate. The headers in a manifest (`manifest_headers`) are
never sent. The functions are pure; callers make random ids.
Source: docs/design/standards.md, "Trace Context and Baggage"; docs/design/contracts.md, "Tracing".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import quote, unquote

from pydantic import Field

from contextos.contracts.ids import SPAN, TRACE, SpanId, TraceId
from contextos.contracts.model import Model

OWN_MEMBER: Final = "contextos"
SAMPLED: Final = 0x01
RANDOM: Final = 0x02
MAX_STATE_MEMBERS: Final = 32
MAX_STATE_CHARS: Final = 512
LARGE_STATE_MEMBER_CHARS: Final = 128
MAX_BAGGAGE_MEMBERS: Final = 64
MAX_BAGGAGE_BYTES: Final = 8192
MAX_HEADER_CHARS: Final = 32_768

HeaderText = Annotated[str, Field(max_length=MAX_BAGGAGE_BYTES, pattern=r"^[\t -~]*$")]

Header = str | list[str]
"""The value of a header, or all values in order if the header was sent more than once."""

StateMember = tuple[str, str]

_OWS: Final = " \t"
_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE_MEMBER: Final = re.compile(r"([a-z0-9][a-z0-9_\-*/@]{0,255})=([ -+\--<>-~]{0,255}[!-+\--<>-~])")
_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_OCTETS: Final = r"[!#-+\--:<-\[\]-~]*"
_BAGGAGE_MEMBER: Final = re.compile(rf"({_TOKEN})[ \t]*=[ \t]*({_OCTETS})")
_PROPERTY: Final = re.compile(rf"{_TOKEN}(?:[ \t]*=[ \t]*{_OCTETS})?")
_BAGGAGE_SAFE: Final = "!#$&'()*+-./:<=>?@[]^_`{|}~"
_UNQUOTED: Final = re.compile(f"[0-9A-Za-z{re.escape(_BAGGAGE_SAFE)}]*")
_KEY: Final = re.compile(_TOKEN)


class TraceLink(Model):
    """A place in another trace."""

    trace_id: TraceId
    """The id of the other trace, 32 hex digits."""
    span_id: SpanId
    """The id of a span in the other trace, 16 hex digits."""


class TraceContext(Model):
    """The trace headers of a request: the caller's position in a distributed trace; state and baggage unchanged."""

    trace_id: TraceId
    """The id of the trace, 32 hex digits."""
    span_id: SpanId
    """The id of the caller's span, 16 hex digits."""
    trace_flags: Annotated[str, Field(pattern=r"^[0-9a-f]{2}$")] = "00"
    """The W3C flags as two hex digits; by default not sampled."""
    tracestate: HeaderText | None = None
    """The header `tracestate`, unchanged."""
    baggage: HeaderText | None = None
    """The header `baggage`, unchanged; authority is never read from it."""
    link: TraceLink | None = None
    """The caller's place in a trace that is not continued. With a link this trace begins here, and `span_id` does not
    name a recorded span.
    """


@dataclass(frozen=True, slots=True)
class Traceparent:
    """A parsed W3C `traceparent` header. `flags` is a bit field; test single bits."""

    trace_id: str
    parent_id: str
    flags: int

    @property
    def sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    @property
    def random(self) -> bool:
        return bool(self.flags & RANDOM)


@dataclass(frozen=True, slots=True)
class BaggageMember:
    """One entry of a W3C `baggage` header. `value` is percent-decoded; `properties` are unchanged."""

    key: str
    value: str
    properties: tuple[str, ...] = ()


def parse_traceparent(header: Header) -> Traceparent | None:
    """Parse a W3C `traceparent` header; None if it is not valid. The caller then starts a new trace and drops
    tracestate.

    Refuses upper case, ids of zeros, version ff, a repeated header, and text after the flags in version 00. In a higher
    version such text is ignored.

    >>> parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").sampled
    True
    """
    values = [header] if isinstance(header, str) else header
    if len(values) != 1 or not (match := _PARENT.fullmatch(values[0].strip(_OWS))):
        return None
    version, trace_id, parent_id, flags, suffix = match.groups()
    if version == "ff" or (version == "00" and suffix is not None):
        return None
    if not TRACE.fits(trace_id) or not SPAN.fits(parent_id):
        return None
    return Traceparent(trace_id, parent_id, int(flags, 16))


def format_traceparent(trace_id: str, parent_id: str, flags: int) -> str:
    """Return a W3C `traceparent` header of version 00. Flag bits that level 2 does not define are set to 0."""
    assert TRACE.fits(trace_id), "a trace id is checked where it is made"
    assert SPAN.fits(parent_id), "a span id is checked where it is made"
    return f"00-{trace_id}-{parent_id}-{flags & (SAMPLED | RANDOM):02x}"


def parse_tracestate(header: Header) -> tuple[StateMember, ...]:
    """Parse a W3C `tracestate` header into (key, value) pairs, in order; the first value of a repeated key counts.

    One malformed member, or more than 32, makes the result empty.
    """
    text = _join_header(header)
    members: dict[str, str] = {}
    count = 0
    for part in text.split(","):
        if not (part := part.strip(_OWS)):
            continue
        count += 1
        if count > MAX_STATE_MEMBERS or not (match := _STATE_MEMBER.fullmatch(part)):
            return ()
        members.setdefault(match[1], match[2])
    return tuple(members.items())


def update_tracestate(members: Iterable[StateMember], value: str) -> tuple[StateMember, ...]:
    """Return `members` with the entry of ContextOS set to `value` and first, within 32 members and 512 characters.

    Members of more than 128 characters are dropped first, then members from the right.
    """
    return _prepend([(OWN_MEMBER, value)], members, MAX_STATE_CHARS)


def _prepend(first: Sequence[StateMember], members: Iterable[StateMember], max_chars: int) -> tuple[StateMember, ...]:
    assert all(_STATE_MEMBER.fullmatch("=".join(member)) for member in first), "our own members are well-formed"
    foreign = [member for member in members if member[0] not in dict(first)][: MAX_STATE_MEMBERS - len(first)]
    while foreign and len(format_tracestate([*first, *foreign])) > max_chars:
        large = [index for index, member in enumerate(foreign) if len("=".join(member)) > LARGE_STATE_MEMBER_CHARS]
        del foreign[large[-1] if large else -1]
    return (*first, *foreign)


def format_tracestate(members: Iterable[StateMember]) -> str:
    """Return the members as the value of a W3C `tracestate` header."""
    return ",".join([f"{key}={value}" for key, value in members])


def parse_baggage(header: Header) -> tuple[BaggageMember, ...]:
    """Parse a W3C `baggage` header, in order and with duplicates; a malformed entry is dropped.

    Reading stops at 64 members or 8192 bytes. Percent-encoding is decoded; bytes that are not UTF-8 become U+FFFD.
    """
    members: list[BaggageMember] = []
    size = 0
    for part in _join_header(header).split(","):
        if not (part := part.strip(_OWS)):
            continue
        size += len(part) + bool(members)
        if size > MAX_BAGGAGE_BYTES or len(members) == MAX_BAGGAGE_MEMBERS:
            break
        if member := _baggage_member(part):
            members.append(member)
    return tuple(members)


def format_baggage(members: Iterable[BaggageMember]) -> str:
    """Return the members as a W3C `baggage` header. Members beyond 64 members or 8192 bytes are dropped at the end."""
    parts: list[str] = []
    size = 0
    for member in members:
        assert _KEY.fullmatch(member.key), "a baggage key is a token"
        value = member.value if _UNQUOTED.fullmatch(member.value) else quote(member.value, safe=_BAGGAGE_SAFE)
        part = ";".join([f"{member.key}={value}", *member.properties])
        size += len(part) + bool(parts)
        if size > MAX_BAGGAGE_BYTES or len(parts) == MAX_BAGGAGE_MEMBERS:
            break
        parts.append(part)
    return ",".join(parts)


def receive_trace(headers: Iterable[tuple[str, str]]) -> TraceContext | None:
    """Return the trace context in a caller's headers, or None if they have no valid traceparent.

    Header names are compared without case. Tracestate and baggage are kept verbatim; a value that is too long or has
    characters other than printable ASCII and tab is dropped.
    """
    values: dict[str, list[str]] = {"traceparent": [], "tracestate": [], "baggage": []}
    for name, value in headers:
        values.get(name.lower(), []).append(value)
    if not (parent := parse_traceparent(values["traceparent"])):
        return None
    verbatim = {
        name: text for name in ("tracestate", "baggage") if (text := ",".join(values[name])) and _is_header_text(text)
    }
    parsed = {"trace_id": parent.trace_id, "span_id": parent.parent_id, "trace_flags": f"{parent.flags:02x}"}
    return TraceContext.model_validate(parsed | verbatim)


def begun_trace(trace_id: str, span_id: str, caller: TraceContext | None = None) -> TraceContext:
    """Return a trace that begins here, under ids that were made here, with a link to the trace of `caller`.

    Nothing else of the caller's trace is taken over.
    """
    fields = {"trace_id": trace_id, "span_id": span_id, "trace_flags": f"{SAMPLED | RANDOM:02x}"}
    link = {"link": {"trace_id": caller.trace_id, "span_id": caller.span_id}} if caller is not None else {}
    return TraceContext.model_validate(fields | link)


def continued_trace(caller: TraceContext, *, trusted: bool) -> TraceContext:
    """Return the trace of a caller as the run goes on with it: the ids and the flags that level 2 defines.

    If the caller is in the trust domain (`trusted`), the well-formed members of its tracestate and baggage go on too;
    otherwise neither of the headers does.
    """
    fields = {
        "trace_id": caller.trace_id,
        "span_id": caller.span_id,
        "trace_flags": f"{int(caller.trace_flags, 16) & (SAMPLED | RANDOM):02x}",
    }
    if trusted:
        fields["tracestate"] = format_tracestate(parse_tracestate(caller.tracestate or ""))
        fields["baggage"] = format_baggage(parse_baggage(caller.baggage or ""))
    return TraceContext.model_validate({name: value for name, value in fields.items() if value})


def child_headers(
    trace: TraceContext, span_id: str, *, baggage: Mapping[str, str] | None = None, external: bool = False
) -> dict[str, str]:
    """Return the trace headers of an outbound call within `trace`. `span_id` (16 hex digits) identifies this call.

    `baggage` has the values of ContextOS (run, session, decision), which replace the caller's values of the same key.
    An `external` service gets no baggage and no tracestate of others.
    """
    headers = {"traceparent": format_traceparent(trace.trace_id, span_id, int(trace.trace_flags, 16))}
    foreign = () if external else parse_tracestate(trace.tracestate or "")
    headers["tracestate"] = format_tracestate(update_tracestate(foreign, span_id))
    if not external and (text := _prepend_baggage(baggage or {}, trace)):
        headers["baggage"] = text
    return headers


def manifest_headers(trace: TraceContext, state: Mapping[str, str], baggage: Mapping[str, str]) -> dict[str, str]:
    """Return the trace headers that the manifest of a run keeps: the caller's position, and the members of the run
    (`state`, `baggage`) before the well-formed members of the caller that have other names.
    """
    foreign = parse_tracestate(trace.tracestate) if trace.tracestate else ()
    members = _prepend(list(state.items()), foreign, MAX_BAGGAGE_BYTES)
    return {
        "traceparent": format_traceparent(trace.trace_id, trace.span_id, int(trace.trace_flags, 16)),
        "tracestate": format_tracestate(members),
        "baggage": _prepend_baggage(baggage, trace),
    }


def _prepend_baggage(own_members: Mapping[str, str], trace: TraceContext) -> str:
    """Return the members `own`, followed by the members of the caller's baggage that have other keys."""
    caller_members = parse_baggage(trace.baggage) if trace.baggage else ()
    members = [BaggageMember(key, value) for key, value in own_members.items()]
    return format_baggage([*members, *[member for member in caller_members if member.key not in own_members]])


def _baggage_member(part: str) -> BaggageMember | None:
    pair, *properties = (piece.strip(_OWS) for piece in part.split(";"))
    match = _BAGGAGE_MEMBER.fullmatch(pair)
    if not match or not all(_PROPERTY.fullmatch(item) for item in properties):
        return None
    return BaggageMember(match[1], unquote(match[2], errors="replace"), tuple(properties))


def _join_header(header: Header) -> str:
    text = header if isinstance(header, str) else ",".join(header)
    return text if len(text) <= MAX_HEADER_CHARS else ""


def _is_header_text(text: str) -> bool:
    return len(text) <= MAX_BAGGAGE_BYTES and re.fullmatch(r"[\t -~]*", text) is not None
