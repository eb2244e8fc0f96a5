"""The documents have every field of what the application returns, so that none is forgotten when one is added."""

from __future__ import annotations

from dataclasses import fields

from contextos.application.approvals import Question
from contextos.application.runs import LedgerEntry, Run
from contextos.http_api.documents import LedgerLine, QuestionDocument, RunDocument, RunSummary


def test_a_document_has_the_fields_of_what_it_shows() -> None:
    for shown, document, left_out in (
        (Run, RunDocument, {"tenant_id"}),
        (LedgerEntry, LedgerLine, set()),
        (Question, QuestionDocument, {"tenant_id"}),
    ):
        public = {one.name for one in fields(shown) if not one.name.startswith("_")}
        assert public - left_out == set(document.model_fields)
    assert set(RunDocument.model_fields) - set(RunSummary.model_fields) == {"record"}
