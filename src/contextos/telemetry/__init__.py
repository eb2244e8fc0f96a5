"""What a process reports about itself, apart from the journal: logging now, traces later.

Owns which fields a log record has, how an exception is described without the values it carries, and how records are
written. Does not own what is logged (each package calls `logging.getLogger("contextos.<package>")` itself), nor the
audit: a log may be lost or switched off, and nothing reads it back.

Invariants, with the tests that prove them:

- No secret, argument, payload or exception message reaches a log record or its text, whichever handler writes it.
  `tests/unit/telemetry/test_logs.py`, `tests/unit/adapters/function/test_adapter.py`, `tests/e2e/test_logging.py`
- Only an edge configures logging, and only the logger `contextos`; the root logger is never touched.
  `tests/unit/telemetry/test_logs.py`
"""
