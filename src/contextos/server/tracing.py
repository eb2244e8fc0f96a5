"""Finds the trace of a request: the trace that the caller names becomes the trace of the run.

A workload is a service in a trust domain that the settings list, so its tracestate and baggage are passed on as far as
they are well-formed. A person sends requests from anywhere, so only the ids and flags of their `traceparent` count.
With the setting `traces_from = "workloads"` a person does not choose the trace id: the run gets a new one, and links to
the trace that the person states. No decision depends on a trace id.
Source: W3C Trace Context (level 2), "Processing Model" and "Mutating the tracestate Field"; W3C Baggage.
"""

from __future__ import annotations

from contextos.contracts.trace import TraceContext, receive_trace
from contextos.trust.identity.callers import Caller
from contextos.workspace import App


def trace_of(
    app: App, caller: Caller, headers: list[tuple[str, str]], stated: TraceContext | None = None
) -> TraceContext:
    """Return the trace of a request. `headers` are its HTTP headers; `stated` is the `trace` of its body, which counts
    if the headers have no valid traceparent.
    """
    return app.trace_of(receive_trace(headers) or stated, is_workload=caller.kind == "workload")
