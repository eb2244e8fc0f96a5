"""The inbox: the questions that wait for the person who reads, most urgent first, and one question with its answer.

An answer goes to `/v1/approvals/{run}/answer`, signed in the browser by a passkey or a key of the person, or is given
by the command that the page prints.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from contextos.contracts.model import MAX_COUNT
from contextos.server.access import RunName, askable_question, is_own, reads_every_run
from contextos.server.console.reading import ConsoleReaderHere, PageRoute, render_for
from contextos.server.console.rendering import CutLines
from contextos.server.console.selector import selections_to_make
from contextos.server.rates import ListsHere

inbox_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_QUESTIONS: Final = 20
"""The most questions on a page, each of which is read and verified."""
MAX_SELECTIONS: Final = 100
Begin = Annotated[int, Query(ge=0, le=MAX_COUNT)]
QUESTION_TOPICS: Final = ("gate", "fact", "policy")
"""The topics of the reasons for a question, in the order of the page."""


@inbox_routes.get("/inbox")
async def get_inbox(reader: ConsoleReaderHere, lists: ListsHere, begin: Begin = 0) -> Response:
    """List the open questions to the roles of the reader, from the place `begin` on."""
    with lists.place(reader.tenant_id):
        page, total = await reader.app.approvals.urgent(
            reader.tenant_id, roles=reader.roles, limit=MAX_QUESTIONS, skip=begin
        )
    unverified = page.unverified if reads_every_run(reader.roles) else ()
    return render_for(
        reader,
        "inbox.html",
        questions=page.items,
        unverified=unverified,
        selections=await selections_to_make(reader, MAX_SELECTIONS) if not begin else (),
        lines=CutLines([], begin, min(begin + MAX_QUESTIONS, total), total),
    )


@inbox_routes.get("/inbox/{run}")
async def get_question_page(reader: ConsoleReaderHere, name: RunName) -> Response:
    """Show one question: why it is asked, what would be done, what it rests on and who asks."""
    question = await askable_question(reader.app, reader.caller, reader.roles, name)
    run = await reader.app.runs.get(reader.tenant_id, question.run_id)
    explained = await reader.app.runs.why(run, tool=question.capability_id)
    texts = {
        reason.text: reason
        for topic in QUESTION_TOPICS
        for reason in explained.reasons
        if reason.topic == topic and reason.tool == question.capability_id
    }
    content = question.content
    return render_for(
        reader,
        "question.html",
        question=question,
        may_read=reads_every_run(reader.roles) or is_own(reader.caller, run),
        reasons=list(texts.values()),
        fault=explained.fault,
        evidence=content["evidence"],
        arguments=content["args"],
        binding=content["binding"],
    )
