"""`Quarantine`: what was found changed stays so, is logged once, and is answered with ids only."""

from __future__ import annotations

import logging

import pytest

from contextos.adapters.foreign.quarantine import Quarantine


def test_what_is_in_quarantine_stays_there_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    quarantine = Quarantine("lab", "a2a")
    assert ("say" in quarantine, quarantine.names) == (False, frozenset())
    for _ in range(2):
        quarantine.add("say")
    assert ("say" in quarantine, "other" in quarantine, quarantine.names) == (True, False, {"say"})
    [record] = caplog.records
    assert (record.levelno, record.__dict__["capability"]) == (logging.WARNING, "lab.say")


def test_the_reply_says_that_nothing_was_sent_and_how_to_go_on() -> None:
    error = Quarantine("lab", "a2a").reply("say").error
    assert error is not None
    assert (error.code, error.retryable, "nothing was sent" in error.message) == ("definition_drift", False, True)
    assert "`contextos adapters add a2a`" in str(error.remedy)
