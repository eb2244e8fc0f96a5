"""Comparisons: where two runs differ, the first difference first."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.pointer import MISSING
from contextos.contracts.model import Model
from contextos.deployment.acts.checks import no_run, verified_run
from contextos.deployment.queries.comparison import RunDifference, compare_entries
from contextos.service.operations.operation import OF_RUN, Asked, Operation

MAX_DIFFERENCE_CHARS: Final = 2_000
"""The most characters of a value of a difference; a longer one ends with `…`."""

ComparedPart = Literal["request", "envelope", "tools", "decisions", "arguments", "evidence", "outcome"]


class ComparisonQuery(Model):
    """With which run to compare."""

    other: Annotated[
        str,
        Field(
            min_length=1,
            max_length=128,
            description="Another run that you may see: its id, or the id of the request that made it.",
        ),
    ]


class DifferenceDocument(Model):
    """A place where two runs differ. `name` is the value in its part, and `place` a JSON Pointer in it. `value` and
    `other` are JSON texts, null if a run has none; `seq` and `other_seq` number the entries that state them.
    """

    part: ComparedPart
    name: str
    place: str
    value: str | None
    other: str | None
    seq: int | None
    other_seq: int | None

    @classmethod
    def of_difference(cls, found: RunDifference) -> DifferenceDocument:
        return cls(
            part=found.part,  # type: ignore[arg-type]  # one of `PARTS`
            name=found.name,
            place=found.place,
            value=_text(found.value),
            other=_text(found.other),
            seq=found.seq,
            other_seq=found.other_seq,
        )


class RunComparison(Model):
    """Where two runs differ: `first` in the order of their journals, and `differences`, 200 at most, with that one on
    top. `more`: there are further ones. Ids of a run, times and hashes are not compared.
    """

    run_id: str
    other_id: str
    equal: bool
    first: DifferenceDocument | None
    differences: list[DifferenceDocument]
    more: bool


async def compare_runs(asked: Asked, query: ComparisonQuery) -> RunComparison:
    """Compare a run with another one: request, envelope, tools, decisions, arguments, evidence and outcome."""
    if asked.open_run is None:
        raise no_run(query.other)
    other_id, others = await asked.open_run(query.other)
    entries = asked.verified
    if entries is None:
        _, entries = await verified_run(asked.app.deployment, asked.tenant_id, asked.name)
    if others is None:
        _, others = await verified_run(asked.app.deployment, asked.tenant_id, other_id)
    found, has_more = compare_entries(entries, others)
    shown = [DifferenceDocument.of_difference(one) for one in found]
    return RunComparison(
        run_id=asked.name,
        other_id=other_id,
        equal=not shown,
        first=shown[0] if shown else None,
        differences=shown,
        more=has_more,
    )


def _text(value: Any) -> str | None:
    if value is MISSING:
        return None
    text = canonical(value).decode()
    return text if len(text) <= MAX_DIFFERENCE_CHARS else f"{text[:MAX_DIFFERENCE_CHARS]}…"


COMPARISON_OPERATIONS: Final = (
    Operation(
        "runs.compare",
        ("GET", "/runs/{run}/comparison"),
        (),
        ComparisonQuery,
        RunComparison,
        compare_runs,
        about=OF_RUN,
        is_long=True,
    ),
)
