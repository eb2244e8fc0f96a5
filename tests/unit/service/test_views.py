"""The documents have every field of what the application returns, so that none is forgotten when one is added, and an
outcome that is written from the record is the outcome that the model makes of it.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from contextos.service.approvals import Question
from contextos.service.runs import LedgerEntry, Run
from contextos.service.views import LedgerLine, QuestionDocument, RequestOutcome, RunDocument, RunSummary
from tests.world import open_world, request, run


def test_a_document_has_the_fields_of_what_it_shows() -> None:
    for shown, document, left_out in (
        (Run, RunDocument, {"tenant_id", "verified"}),
        (LedgerEntry, LedgerLine, set()),
        (Question, QuestionDocument, {"tenant_id"}),
    ):
        public = {one.name for one in fields(shown) if not one.name.startswith("_")}
        assert public - left_out == set(document.model_fields) - {"binding", "run_budget"}
    assert set(RunDocument.model_fields) - set(RunSummary.model_fields) == {"paused", "record", "run_budget"}


def test_the_json_of_an_outcome_is_that_of_its_model(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        waits_for = []
        for amount in (900, 4200):
            view = await world.invoke(request(amount, f"req_{amount}"))
            outcome = RequestOutcome.of_view(view)
            assert json.loads(RequestOutcome.json_of_view(view)) == json.loads(
                outcome.model_dump_json(exclude_unset=True)
            )
            waits_for.append(outcome.waits_for)
        assert waits_for == [None, "approval"]
        world.close()

    run(act())
