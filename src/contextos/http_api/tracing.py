"""The place of a request in a trace: that of a workload goes on, and that of a person begins here.

A workload is a service in a trust domain that the settings list, so its `traceparent` is the parent of the run, and its
tracestate and baggage go on as far as they are well-formed. A person sends requests from anywhere. They choose no trace
id of ours: the run gets one that was made here, and links to the trace that they state. Their tracestate and baggage
are dropped.
Source: W3C Trace Context (level 2), "Processing Model" and "Mutating the tracestate Field"; W3C Baggage.
"""

from __future__ import annotations

from contextos.app import App
from contextos.contracts.trace import TraceContext, begun_trace, continued_trace, receive_trace
from contextos.trust.identity.callers import Caller


def trace_of(
    app: App, caller: Caller, headers: list[tuple[str, str]], stated: TraceContext | None = None
) -> TraceContext:
    """Return the trace of a request. `headers` are those of HTTP; `stated` is the `trace` of its body, which counts
    where the headers have no valid traceparent.
    """
    received = receive_trace(headers) or stated
    if received is not None and caller.kind == "workload":
        return continued_trace(received)
    entropy = app.deployment.ports.entropy
    return begun_trace(entropy.take(16).hex(), entropy.take(8).hex(), received)
