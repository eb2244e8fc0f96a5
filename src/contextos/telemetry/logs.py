"""Structured logging over the standard library: named fields, and exceptions described without their values.

An exception's message is foreign text that can hold an API key, a card number or a customer's order, and no pattern
finds all of those. So the message never enters a log record: `error_fields` gives the classes of the exception and its
causes and the places in the code (file, line, function). Callers pass these fields as `extra`, never `exc_info`, so
that a handler that an embedding application configured cannot print more than ours.

The formatters are a second line of defence. They write only the fields in `FIELDS`, describe a record's `exc_info` in
the same way, and redact card numbers, secrets and email addresses with the patterns of `trust.redact`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.runtime.logged_run import LOGGED_RUN
from contextos.trust.redact import redact

ROOT: Final = "contextos"
"""The parent of every logger here; the only one that `configure` changes."""
FIELDS: Final = (
    "tenant",
    "run",
    "trace",
    "tool_call",
    "capability",
    "error",
    "traceback",
    "retry_after_ms",
    "runs",
    "attempt",
    "subscriber",
)
"""The fields that are written, in this order. `tool_call` is the `tool_call_id` of the journal, and `trace` the id of
the W3C trace of the run.
"""
MAX_ERRORS: Final = 8
MAX_FRAMES: Final = 40
"""Innermost frames that are kept for each exception."""
MAX_FIELD_CHARS: Final = 300
MAX_REDACTED_CHARS: Final = 16_384
"""Characters of a field that are redacted before it is cut to `MAX_FIELD_CHARS`. The rest is dropped."""


def error_fields(error: BaseException) -> dict[str, Any]:
    """Return the `extra` of a log call for an exception: `error` (its class) and `traceback` (a list of lines).

    The traceback names the class and the frames of the exception, then those of its causes. It holds no message, no
    source line and no value of a variable, and is the same for an exception that overrides its own attributes.
    """
    return {"error": _class_name(error), "traceback": list(_traceback_lines(error, []))}


def configure(stream: TextIO, *, level: int = logging.DEBUG, as_json: bool) -> logging.Handler:
    """Write the records of `contextos` to `stream`, as JSON lines or for people. For the edge of a process only.

    Replaces what an earlier call configured. Returns the handler.
    """
    handler = _LogStream(stream)
    handler.setFormatter(JsonLinesFormatter() if as_json else ConsoleFormatter())
    logger = logging.getLogger(ROOT)
    for old_handler in [other for other in logger.handlers if isinstance(other, _LogStream)]:
        logger.removeHandler(old_handler)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    return handler


def configure_if_debugging(*, serves: bool = False) -> None:
    """With `CONTEXTOS_DEBUG`, write the log to stderr: as JSON lines if that is not a terminal. For the edge of a
    process, and for `contextos.open`. Loggers that a program has configured are left alone. With `serves` and without
    `CONTEXTOS_DEBUG`, write warnings, because the callers of a server cannot see the reasons of its refusals.
    """
    debugs = bool(os.environ.get("CONTEXTOS_DEBUG"))
    handlers = [*logging.getLogger(ROOT).handlers, *([] if debugs else logging.getLogger().handlers)]
    # A library's `NullHandler` configures nothing.
    if (debugs or serves) and all(isinstance(handler, logging.NullHandler) for handler in handlers):
        configure(sys.stderr, level=logging.DEBUG if debugs else logging.WARNING, as_json=not sys.stderr.isatty())


class JsonLinesFormatter(logging.Formatter):
    """Format a log record as one line of ASCII JSON.

    The line has `time` (UTC), `level`, `logger` and `message`, and the fields of `FIELDS` that the record carries.
    """

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_record_document(record))


class ConsoleFormatter(logging.Formatter):
    """Format a log record as one line for people, followed by an indented line for each line of its traceback.

    Terminal escape sequences in it are made visible.
    """

    def format(self, record: logging.LogRecord) -> str:
        document = _record_document(record)
        time, level, logger, message = (document.pop(name) for name in ("time", "level", "logger", "message"))
        frames = document.pop("traceback", [])
        fields = " ".join(f"{name}={displayed(value)}" for name, value in document.items())
        headline = f"{time} {level:<7} {logger}: {displayed(message)}"
        return "\n".join([f"{headline}  {fields}".rstrip(), *(f"    {displayed(line)}" for line in frames)])


class _LogStream(logging.StreamHandler[TextIO]):
    """The handler of `configure`. Its class distinguishes it from the handlers of an embedding application."""


def _record_document(record: logging.LogRecord) -> dict[str, Any]:
    values = _run_fields(getattr(record, "run", None)) | vars(record)
    fields = {name: values[name] for name in FIELDS if values.get(name) is not None}
    if record.exc_info and (error := record.exc_info[1]) is not None:
        fields |= error_fields(error)
    document: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname,
        "logger": record.name,
        "message": _redact_text(record.getMessage()),
    }
    return document | {name: _plain_value(value) for name, value in fields.items()}


def _run_fields(run: object) -> dict[str, str]:
    """Return the run that the current task drives, and its trace; a run that it drove before only if `run` names it."""
    current = LOGGED_RUN.get()
    if current is None or not (run == current.run_id or (run is None and current.is_driven)):
        return {}
    return {"run": current.run_id, "trace": current.trace_id}


def _plain_value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_redact_text(str(item)) for item in value]
    return value if isinstance(value, bool | int | float) else _redact_text(str(value))


def _redact_text(text: str) -> str:
    # Cut after redaction, so that no part of a secret is left before the cut.
    clean, _ = redact(text[:MAX_REDACTED_CHARS].encode(errors="replace").decode(), list(REDACTION_TARGETS))
    assert isinstance(clean, str), "a text is redacted to a text"
    return clean[:MAX_FIELD_CHARS]


def _traceback_lines(error: BaseException, seen: list[BaseException]) -> Iterator[str]:
    """Yield lines for the exception, for the members of a group, and for its cause or context, each exception once."""
    seen.append(error)
    yield _class_name(error)
    frames = traceback.walk_tb(_base_attribute(error, "__traceback__"))
    places = [(frame.f_code.co_filename, line, frame.f_code.co_qualname) for frame, line in frames]
    if len(places) > MAX_FRAMES:
        yield f"  ... {len(places) - MAX_FRAMES} outer frames left out"
    for file, line, function in places[-MAX_FRAMES:]:
        yield _redact_text(f'  File "{file}", line {line}, in {function}')
    for relation, related in _related_errors(error):
        if len(seen) >= MAX_ERRORS:
            yield "  ... more exceptions left out"
            return
        if not any(related is previous for previous in seen):
            yield f"  {relation}:"
            yield from _traceback_lines(related, seen)


def _related_errors(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    if issubclass(type(error), BaseExceptionGroup):
        for member in vars(BaseExceptionGroup)["exceptions"].__get__(error):
            yield "member of the group", member
    cause, context = _base_attribute(error, "__cause__"), _base_attribute(error, "__context__")
    if cause is not None:
        yield "caused by", cause
    elif context is not None and not _base_attribute(error, "__suppress_context__"):
        yield "raised while handling", context


def _base_attribute(error: BaseException, name: str) -> Any:
    """Return an attribute as `BaseException` keeps it. A foreign class can override it, and then raise or lie."""
    return vars(BaseException)[name].__get__(error)


def _class_name(error: BaseException) -> str:
    # An instance can override `__class__`, and a metaclass `__name__`.
    return _redact_text(str(vars(type)["__qualname__"].__get__(type(error))))
