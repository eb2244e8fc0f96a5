"""Structured logs: which fields are written, what an exception may show, and who configures logging."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from contextos.runtime.logged_run import LOGGED_RUN, LoggedRun
from contextos.telemetry.logs import (
    FIELDS,
    MAX_ERRORS,
    MAX_FIELD_CHARS,
    MAX_FRAMES,
    ConsoleFormatter,
    JsonLinesFormatter,
    configure,
    error_fields,
)

KEY, PAN, BEARER = "sk-live-0123456789abcdefghij", "4111 1111 1111 1111", "Bearer abcdefghijklmnop0123456789"


def record(message: str, *args: object, exception: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    exc_info = (type(exception), exception, exception.__traceback__) if exception is not None else None
    made = logging.LogRecord("contextos.workspace.engine", logging.WARNING, __file__, 1, message, args, exc_info)
    vars(made).update(extra)
    return made


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as caught:
        return caught


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("contextos")


def test_a_json_line_holds_the_known_fields_and_no_others() -> None:
    line = JsonLinesFormatter().format(record("drive failed", tenant="acme", run="run_1", attempt=2, args_of_call={}))
    document = json.loads(line)
    assert list(document) == ["time", "level", "logger", "message", "tenant", "run", "attempt"]
    assert document["time"].endswith("+00:00")
    assert (document["message"], document["attempt"]) == ("drive failed", 2)


def test_a_line_for_people_shows_terminal_escapes_and_one_value_is_one_line() -> None:
    fields = error_fields(raised(ValueError("x")))
    text = ConsoleFormatter().format(record("a\x1b[31m\nb", tenant="acme\x1b]0;\n", **fields))
    first, *frames = text.split("\n")
    assert "\x1b" not in text
    assert first.endswith(
        "WARNING contextos.workspace.engine: a\\u001b[31m\\nb  tenant=acme\\u001b]0;\\n error=ValueError"
    )
    assert frames[0] == "    ValueError"
    assert frames[1].endswith("in raised")


@pytest.mark.parametrize("secret", [KEY, PAN, BEARER, "ann@example.org"])
@pytest.mark.parametrize("formatter", [JsonLinesFormatter(), ConsoleFormatter()])
def test_a_formatter_redacts_secrets_logged_by_mistake(formatter: logging.Formatter, secret: str) -> None:
    text = formatter.format(record("failed with %s", secret, tenant=secret, traceback=[secret]))
    assert secret not in text
    assert text.count("[redacted:") == 3


@pytest.mark.parametrize("formatter", [JsonLinesFormatter(), ConsoleFormatter()])
def test_an_exception_in_the_usual_place_is_described_without_its_message(formatter: logging.Formatter) -> None:
    text = formatter.format(record("failed", exception=raised(ValueError("hunter2"))))
    assert "ValueError" in text
    assert "in raised" in text
    assert "hunter2" not in text


def test_a_cause_a_context_and_the_members_of_a_group_are_described_once_each() -> None:
    cause = raised(KeyError("hunter2"))
    group = ExceptionGroup("hunter2", [raised(OSError("hunter2")), cause])
    group.__cause__ = cause
    lines = error_fields(raised(group))["traceback"]
    names = [line for line in lines if not line.startswith(" ")]
    assert names == ["ExceptionGroup", "OSError", "KeyError"]
    assert [line.strip() for line in lines if line.endswith(":")] == ["member of the group:", "member of the group:"]
    assert "hunter2" not in repr(lines)


def test_a_context_is_left_out_where_the_raiser_suppressed_it() -> None:
    def fails(*, quiet: bool) -> BaseException:
        try:
            try:
                raise KeyError
            except KeyError:
                if quiet:
                    raise ValueError from None
                raise ValueError  # noqa: B904
        except ValueError as error:
            return error

    assert "KeyError" in error_fields(fails(quiet=False))["traceback"]
    assert "KeyError" not in error_fields(fails(quiet=True))["traceback"]


def test_a_description_is_bounded() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ExceptionGroup("many", [ValueError(number) for number in range(100)])

    with pytest.raises(ExceptionGroup) as caught:
        deep(2 * MAX_FRAMES)
    lines = error_fields(caught.value)["traceback"]
    assert len(lines) <= 2 * MAX_ERRORS + MAX_FRAMES + 2
    assert "outer frames left out" in lines[1]
    assert lines[-1] == "  ... more exceptions left out"


def test_a_long_value_is_cut_and_shows_no_part_of_a_secret_that_crosses_the_cut() -> None:
    for before in range(MAX_FIELD_CHARS - len(KEY) - 2, MAX_FIELD_CHARS + 2):
        message = json.loads(JsonLinesFormatter().format(record("x" * before + f" {KEY} tail")))["message"]
        assert len(message) <= MAX_FIELD_CHARS
        assert "sk-" not in message


def test_configuring_twice_writes_each_record_once_and_leaves_the_root_logger_alone(logger: logging.Logger) -> None:
    root = list(logging.getLogger().handlers)
    first, second = io.StringIO(), io.StringIO()
    configure(first, as_json=False)
    configure(second, as_json=True)
    logging.getLogger("contextos.workspace.engine").debug("swept", extra={"runs": 3})
    assert first.getvalue() == ""
    (line,) = second.getvalue().splitlines()
    assert json.loads(line)["runs"] == 3
    assert logging.getLogger().handlers == root


def test_the_package_writes_nothing_unless_somebody_configures_logging() -> None:
    code = "import contextos, logging; logging.getLogger('contextos.workspace.engine').error('not shown')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_no_field_is_an_attribute_that_every_record_has() -> None:
    assert not set(FIELDS) & vars(record("x")).keys()


@pytest.fixture
def driven() -> Iterator[LoggedRun]:
    """The run `run_1`, driven by this task."""
    made = LoggedRun("run_1", "4bf92f3577b34da6a3ce929d0e0e4736")
    token = LOGGED_RUN.set(made)
    yield made
    LOGGED_RUN.reset(token)


def written(**extra: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(JsonLinesFormatter().format(record("said", **extra)))
    return {name: document.get(name) for name in ("run", "trace")}


def test_what_is_logged_while_a_run_is_driven_names_it_and_its_trace(driven: LoggedRun) -> None:
    whole = {"run": "run_1", "trace": driven.trace_id}
    assert written() == whole
    assert written(run="run_1") == whole
    assert written(run="run_2") == {"run": "run_2", "trace": None}


def test_after_the_drive_only_a_record_that_names_the_run_has_its_trace(driven: LoggedRun) -> None:
    driven.is_driven = False
    assert written() == {"run": None, "trace": None}
    assert written(run="run_1") == {"run": "run_1", "trace": driven.trace_id}


def test_a_record_of_no_run_has_no_trace() -> None:
    assert written(run="run_1") == {"run": "run_1", "trace": None}
