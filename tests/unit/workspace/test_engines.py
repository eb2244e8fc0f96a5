"""The witness that does not answer stops no run; one that knows more does."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from contextos.errors import Integrity, Unavailable
from contextos.workspace.engines import ask_witness
from tests.world import TENANT, run


class Publisher:
    """A publisher whose check ends as the test says."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault

    async def check_once(self, tenant_id: str) -> None:
        assert tenant_id == TENANT
        raise self.fault


def test_a_witness_that_does_not_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    publisher: Any = Publisher(Unavailable("witness", "no answer"))
    with caplog.at_level(logging.WARNING):
        run(ask_witness(publisher, TENANT))
    assert "witness not asked" in caplog.text


def test_a_witness_that_knows_more_than_the_store_is_believed() -> None:
    publisher: Any = Publisher(Integrity("the journal lacks its end"))
    with pytest.raises(Integrity, match="lacks its end"):
        run(ask_witness(publisher, TENANT))
