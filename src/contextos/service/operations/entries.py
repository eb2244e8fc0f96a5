"""The entries of one run's journal, as they are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import Field, Strict

from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry
from contextos.contracts.model import Model
from contextos.deployment.acts.checks import verified_run
from contextos.service.operations.operation import OF_RUN, Asked, Operation, Paged, page_of
from contextos.service.runs import ledger_entry
from contextos.service.views import LedgerLine


class EntryQuery(Paged):
    """Which entries of a run, in order. Without a field: all."""

    seq: Annotated[
        Annotated[int, Strict(False), Field(ge=1)] | None, Field(description="The number of one entry, from 1.")
    ] = None
    call: Annotated[
        str, Field(max_length=200, description="The id of a tool call: only the entries that are about it.")
    ] = ""


class EntryPage(Model):
    """A page of the entries of a run, in order. `cursor` asks for the next page; null after the last."""

    items: list[LedgerLine]
    cursor: str | None


async def list_entries(asked: Asked, query: EntryQuery) -> EntryPage:
    """List the entries of a run's journal, in order. A run that does not verify has none to show."""
    entries = asked.verified
    if entries is None:
        _, entries = await verified_run(asked.app.deployment, asked.tenant_id, asked.name)
    found: Sequence[Entry] = entries
    if query.seq is not None:
        found = [one for one in entries if one.seq == query.seq]
    elif query.call:
        found = [one for one in entries if query.call in _calls(read_body(one))]
    of = (asked.tenant_id, "entries", asked.name, query.seq, query.call)
    items, cursor = page_of(list(map(ledger_entry, found)), of, query.limit, query.cursor)
    return EntryPage(items=[LedgerLine.of_entry(one) for one in items], cursor=cursor)


def _calls(body: Any) -> tuple[str, ...]:
    """Return the ids of the tool calls that the body of an entry is about."""
    of_call = body if isinstance(body, dict) else {}
    envelope = of_call.get("envelope")
    places = (of_call, envelope if isinstance(envelope, dict) else {})
    return tuple(str(one["tool_call_id"]) for one in places if "tool_call_id" in one)


ENTRY_OPERATIONS: Final = (
    Operation("runs.entries", ("GET", "/runs/{run}/entries"), (), EntryQuery, EntryPage, list_entries, about=OF_RUN),
)
