"""The place of a request in a trace: the trace that the caller names is the trace of the run.

A workload is a service in a trust domain that the settings list, so its tracestate and baggage go on as far as they are
well-formed. A person sends requests from anywhere: of theirs only the ids and the flags of the `traceparent` count.
With the setting `traces_from = "workloads"` people choose no trace id of ours: the run gets one that was made here, and
links to the trace that they state. Nothing is decided by a trace id.
Source: W3C Trace Context (level 2), "Processing Model" and "Mutating the tracestate Field"; W3C Baggage.
"""

from __future__ import annotations

from contextos.contracts.trace import TraceContext, receive_trace
from contextos.trust.identity.callers import Caller
from contextos.workspace import App


def trace_of(
    app: App, caller: Caller, headers: list[tuple[str, str]], stated: TraceContext | None = None
) -> TraceContext:
    """Return the trace of a request. `headers` are those of HTTP; `stated` is the `trace` of its body, which counts
    where the headers have no valid traceparent.
    """
    return app.trace_of(receive_trace(headers) or stated, is_workload=caller.kind == "workload")
