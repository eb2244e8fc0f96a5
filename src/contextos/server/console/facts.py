"""The page of the facts of a subject: what holds, and what was replaced or retracted before."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from contextos.contracts.encoding.codec import parse
from contextos.errors import InvalidInput, Problem
from contextos.server.access import require_role
from contextos.server.console.links import acts_on, form_address, may_sign
from contextos.server.console.reading import ConsoleReaderHere, PageRoute, render_for
from contextos.service.acts import signer_elsewhere
from contextos.service.operations.facts import FACT_READERS, FactQuery, list_facts
from contextos.service.operations.operation import Asked
from contextos.service.operations.table import named_operation

fact_page_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_HELD_FACTS: Final = 100
"""The most facts of a page that hold, and the most that ended."""


@fact_page_routes.get("/facts")
async def get_facts_page(
    reader: ConsoleReaderHere,
    subject: Annotated[str, Query(max_length=256)] = "",
    predicate: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """Show the facts of a subject with their sources, and the history of each predicate."""
    require_role(reader.roles, *FACT_READERS)
    asked = Asked(reader.app, reader.tenant_id, signer_elsewhere(reader.caller.subject))
    shown, problems = dict[str, Any](), tuple[Problem, ...]()
    if subject:
        fields = {"subject": subject, "limit": MAX_HELD_FACTS} | ({"predicate": predicate} if predicate else {})
        try:
            for ended in (False, True):
                shown[str(ended)] = await list_facts(asked, parse(FactQuery, {**fields, "ended": ended}))
        except InvalidInput as error:
            problems = error.problems
    return render_for(
        reader,
        "facts.html",
        subject=subject,
        predicate=predicate,
        holding=shown.get("False"),
        ended=_newest_first(shown["True"].items) if "True" in shown else [],
        more=any(page.cursor for page in shown.values()),
        problems=problems,
        acts=lambda fact: acts_on("facts.list", fact.to_json(), reader.roles),
        new=form_address("facts.set", subject=subject) if may_sign(named_operation("facts.set"), reader.roles) else "",
    )


def _newest_first(facts: list[Any]) -> list[Any]:
    return sorted(facts, key=lambda fact: int(fact.snapshot.removeprefix("kg_")), reverse=True)
