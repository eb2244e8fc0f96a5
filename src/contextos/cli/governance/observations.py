"""`pack observations`, `pack mine` and `pack test`: count what sessions recorded, draft a pack from it, and test a pack
on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    with_read_context,
    write_new_file,
)
from contextos.cli.governance.declarations import whole_pack, workspace_definitions
from contextos.cli.runs.faults import exit_code_of_faults, fault_lines
from contextos.cli.terminal import Heading, print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.deployment.queries.observations import Recording
    from contextos.packs.mining.backtest import BacktestVerdict, JudgedCall

DENIED: Final = 1
"""The exit code of `pack test` where the pack would deny a call that was made."""

RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN...]", help="Runs or requests; by default the sessions whose pack observed, of the newest runs."
    ),
]
IntentsOption = Annotated[
    list[str] | None, typer.Option("--intent", metavar="ID", help="Only sessions of this intent. Repeatable.")
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", min=1, max=1_000_000, help="Read at most this many of the newest runs. Default: 1000."),
]


def observations_command(
    runs: RunsArgument = None,
    intent: IntentsOption = None,
    limit: LimitOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List what packs that observe would have denied or asked, by rule.

    A run that does not verify is left out, and the exit code is 3.
    """
    from contextos.deployment.queries.observations import counts_by_rule

    recording, _ = _recording(runs, intent, limit, workspace, tenant)
    counts = counts_by_rule(recording.sessions)
    lines: list[str] = [Heading(f"{'calls':>5}  {'would':<5}  rule")]
    for one in counts:
        calls = ", ".join(displayed(f"{run}/{call}") for run, call in one.examples)
        lines += [f"{one.count:>5}  {one.verdict:<5}  {displayed(one.rule)}", f"       {displayed(one.detail)}"]
        lines.append(f"       {calls}{', …' if one.count > len(one.examples) else ''}")
    free = sum(not call.findings for call in recording.calls)
    lines.append(
        f"{len(recording.calls)} calls of {len(recording.sessions)} sessions; nothing would have stopped {free}"
    )
    document = {
        "sessions": len(recording.sessions),
        "calls": len(recording.calls),
        "rules": [
            {
                "rule": one.rule,
                "verdict": one.verdict,
                "detail": one.detail,
                "count": one.count,
                "calls": [list(call) for call in one.examples],
            }
            for one in counts
        ],
        "faults": recording.faults,
        "older_runs": recording.older,
    }
    print_result(document, [*lines, *_not_counted(recording)], as_json=as_json)
    return exit_code_of_faults(recording.faults.values())


def mine_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the pack, for example acme.deploy.")],
    runs: RunsArgument = None,
    version: Annotated[str, typer.Option("--version", metavar="X.Y.Z", help="The version of the pack.")] = "0.1.0",
    approver: Annotated[
        str, typer.Option("--approver", metavar="ROLE", help="The role that is asked about writes.")
    ] = "approver",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The file; by default NAME.yaml.")] = None,
    intent: IntentsOption = None,
    limit: LimitOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Write the short form of a pack that allows what sessions did, and little else.

    It is a draft: read it before it is signed. Each entry names calls that it came from.
    """
    from contextos.packs.expansion import expand
    from contextos.packs.mining.draft import mined_yaml
    from contextos.packs.mining.miner import mine

    recording, tenant_id = _recording(runs, intent, limit, workspace, tenant)
    definitions = workspace_definitions(workspace)
    mined = mine(
        recording.sessions, definitions.values(), name=name, version=version, tenant_id=tenant_id, approver=approver
    )
    expand(mined.declaration, definitions.values())
    path = out or Path(f"{name}.yaml")
    write_new_file(path, mined_yaml(mined))
    count = len(recording.calls) - sum(mined.left_out.values())
    lines = [f"{displayed(str(path))} is written, from {count} calls of {len(recording.sessions)} sessions"]
    lines += [f"{number} calls are left out: {displayed(why)}" for why, number in sorted(mined.left_out.items())]
    lines += [f"NOT BOUNDED: {displayed(', '.join(names))} of {tool}" for tool, names in mined.unbounded.items()]
    document = {
        "file": str(path),
        "calls": count,
        "calls_left_out": mined.left_out,
        "not_bounded": mined.unbounded,
        "faults": recording.faults,
        "older_runs": recording.older,
    }
    print_result(document, [*lines, *_not_counted(recording)], as_json=as_json)
    return exit_code_of_faults(recording.faults.values())


def test_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pack: short, whole, or in its envelope.")],
    runs: RunsArgument = None,
    intent: IntentsOption = None,
    limit: LimitOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Judge the calls that sessions made by a pack: allowed, asked about, or denied, and by which rules.

    The sessions are played again in memory with the recorded answers; nothing outside is called. Ends with the exit
    code 1 if the pack would deny a call that was made. Facts of the graph are not played again.
    """
    import asyncio

    from contextos.packs.mining.backtest import backtest
    from contextos.workspace.in_memory import in_memory

    recording, _ = _recording(runs, intent, limit, workspace, tenant)
    document, definitions = whole_pack(file, workspace), workspace_definitions(workspace)
    judged = asyncio.run(backtest(document, list(definitions.values()), recording.sessions, in_memory))
    if not judged:
        detail = "no call is recorded that a tool answered"
        remedy = "name runs of sessions, or record some with a pack that observes"
        raise InvalidInput(Problem("", "nothing_recorded", detail, remedy))
    counts = Counter(one.verdict for one in judged)
    lines = [f"{counts[one]} {text}" for one, text in _TOLD.items()]
    lines += _by_rule(judged)
    answer = {
        "allowed": counts["allowed"],
        "ask": counts["ask"],
        "deny": counts["deny"],
        "calls": [
            {
                "run_id": one.call.run_id,
                "call_id": one.call.call_id,
                "tool": one.call.tool,
                "verdict": one.verdict,
                "rules": list(one.rules),
                "detail": one.detail,
            }
            for one in judged
            if one.verdict != "allowed"
        ],
        "faults": recording.faults,
        "older_runs": recording.older,
    }
    print_result(answer, [*lines, *_not_counted(recording)], as_json=as_json)
    return exit_code_of_faults(recording.faults.values()) or (DENIED if counts["deny"] else 0)


_TOLD: Final[Mapping[BacktestVerdict, str]] = {"allowed": "allowed", "ask": "asked about", "deny": "denied"}


def _by_rule(judged: list[JudgedCall]) -> list[str]:
    """Return two lines for each rule that asks or denies: its count, and one of its calls."""
    found: dict[tuple[str, str], list[JudgedCall]] = {}
    for one in judged:
        for rule in one.rules:
            found.setdefault((one.verdict, rule), []).append(one)
    lines = []
    for (verdict, rule), calls in sorted(found.items(), key=lambda item: (item[0][0] != "deny", -len(item[1]))):
        first = calls[0]
        lines.append(f"{verdict:<5}  {len(calls):>5}  {displayed(rule)}")
        lines.append(f"       {displayed(f'{first.call.run_id}/{first.call.call_id}')}: {displayed(first.detail)}")
    return lines


def _recording(
    runs: list[str] | None, intents: list[str] | None, limit: int | None, workspace: Path | None, tenant: str
) -> tuple[Recording, str]:
    if runs and limit is not None:
        detail = "--limit is for the newest runs, and these are named"
        raise InvalidInput(Problem("", "usage", detail, "leave one of the two out"))

    async def operation(context: CommandContext) -> tuple[Recording, str]:
        from contextos.deployment.queries.observations import read_sessions
        from contextos.deployment.queries.run_index import MAX_RUNS_READ

        most, keys = limit or MAX_RUNS_READ, context.app.keys
        found = await read_sessions(context.store, context.tenant_id, keys, runs or (), limit=most)
        return found.of_intents(intents or ()), context.tenant_id

    return with_read_context(workspace, tenant, operation)


def _not_counted(recording: Recording) -> list[str]:
    """Return the lines that say which runs are not in a recording, and why."""
    lines = [line for run, why in recording.faults.items() for line in (f"left out: {run}", *fault_lines(why))]
    return [*lines, "older runs were not read; read more with --limit"] if recording.older else lines
