"""What a process reports to its operators: its log, and the traces, events and metrics of runs.

Owns which fields a log record has, how an exception is described without the values it carries, and how records are
written; and what of the journal of a run leaves for OpenTelemetry and Prometheus. Does not own what is logged (each
package calls `logging.getLogger("contextos.<package>")` itself), nor the audit: a log and a trace may be lost or
switched off, and nothing reads them back.

Invariants, with the tests that prove them:

- No secret, argument, payload or exception message reaches a log record or its text, whichever handler writes it.
  `tests/unit/telemetry/test_logs.py`, `tests/unit/adapters/function/test_adapter.py`, `tests/e2e/test_logging.py`
- Traces, events and metrics are computed from the journal alone, and have no content of a run.
  `tests/unit/telemetry/test_spans.py`, `tests/attacks/test_d46_telemetry_tells_no_content.py`
- No share of traces hides a run with a gate, a failure, an incident or a call that can have an effect.
  `tests/unit/telemetry/test_sampling.py`, `tests/attacks/test_d46_telemetry_tells_no_content.py`
- Nothing of one tenant is at the collector of another. `tests/attacks/test_g133_telemetry_is_a_tenants.py`
- Only an edge configures logging, and only the logger `contextos`; the root logger is never touched.
  `tests/unit/telemetry/test_logs.py`
"""
