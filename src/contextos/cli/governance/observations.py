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
    usage_error,
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

    recording, _ = _read_recording(runs, intent, limit, workspace, tenant)
    counts = counts_by_rule(recording.sessions)
    lines: list[str] = [Heading(f"{'calls':>5}  {'would':<5}  rule")]
    for rule in counts:
        calls = ", ".join(displayed(f"{run}/{call}") for run, call in rule.examples)
        lines += [f"{rule.count:>5}  {rule.verdict:<5}  {displayed(rule.rule)}", f"       {displayed(rule.detail)}"]
        lines.append(f"       {calls}{', …' if rule.count > len(rule.examples) else ''}")
    unstopped = sum(not call.findings for call in recording.calls)
    lines.append(
        f"{len(recording.calls)} calls of {len(recording.sessions)} sessions; nothing would have stopped {unstopped}"
    )
    document = {
        "sessions": len(recording.sessions),
        "calls": len(recording.calls),
        "rules": [
            {
                "rule": rule.rule,
                "verdict": rule.verdict,
                "detail": rule.detail,
                "count": rule.count,
                "calls": [list(call) for call in rule.examples],
            }
            for rule in counts
        ],
        "faults": recording.faults,
        "older_runs": recording.older,
    }
    print_result(document, [*lines, *_left_out_lines(recording)], as_json=as_json)
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

    recording, tenant_id = _read_recording(runs, intent, limit, workspace, tenant)
    definitions = workspace_definitions(workspace)
    mined = mine(
        recording.sessions, definitions.values(), name=name, version=version, tenant_id=tenant_id, approver=approver
    )
    expand(mined.declaration, definitions.values())
    path = out or Path(f"{name}.yaml")
    write_new_file(path, mined_yaml(mined))
    count = len(recording.calls) - sum(mined.left_out.values())
    lines = [f"{displayed(str(path))} is written, from {count} calls of {len(recording.sessions)} sessions"]
    lines += [f"{number} calls are left out: {displayed(reason)}" for reason, number in sorted(mined.left_out.items())]
    lines += [f"NOT BOUNDED: {displayed(', '.join(names))} of {tool}" for tool, names in mined.unbounded.items()]
    document = {
        "file": str(path),
        "calls": count,
        "calls_left_out": mined.left_out,
        "not_bounded": mined.unbounded,
        "faults": recording.faults,
        "older_runs": recording.older,
    }
    print_result(document, [*lines, *_left_out_lines(recording)], as_json=as_json)
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

    recording, _ = _read_recording(runs, intent, limit, workspace, tenant)
    document, definitions = whole_pack(file, workspace), workspace_definitions(workspace)
    judged_calls = asyncio.run(backtest(document, list(definitions.values()), recording.sessions, in_memory))
    if not judged_calls:
        detail = "no call is recorded that a tool answered"
        remedy = "name runs of sessions, or record some with a pack that observes"
        raise InvalidInput(Problem("", "nothing_recorded", detail, remedy))
    counts = Counter(call.verdict for call in judged_calls)
    lines = [f"{counts[verdict]} {text}" for verdict, text in _VERDICT_TEXTS.items()]
    lines += _rule_lines(judged_calls)
    answer = {
        "allowed": counts["allowed"],
        "ask": counts["ask"],
        "deny": counts["deny"],
        "calls": [
            {
                **{name: getattr(judged.call, name) for name in ("run_id", "call_id", "tool")},
                "verdict": judged.verdict,
                "rules": list(judged.rules),
                "detail": judged.detail,
            }
            for judged in judged_calls
            if judged.verdict != "allowed"
        ],
        "faults": recording.faults,
        "older_runs": recording.older,
    }
    print_result(answer, [*lines, *_left_out_lines(recording)], as_json=as_json)
    return exit_code_of_faults(recording.faults.values()) or (DENIED if counts["deny"] else 0)


_VERDICT_TEXTS: Final[Mapping[BacktestVerdict, str]] = {"allowed": "allowed", "ask": "asked about", "deny": "denied"}


def _rule_lines(judged_calls: list[JudgedCall]) -> list[str]:
    """Return two lines for each rule that asks or denies: its count, and one of its calls."""
    calls_by_rule: dict[tuple[str, str], list[JudgedCall]] = {}
    for call in judged_calls:
        for rule in call.rules:
            calls_by_rule.setdefault((call.verdict, rule), []).append(call)
    lines = []
    for (verdict, rule), calls in sorted(calls_by_rule.items(), key=lambda item: (item[0][0] != "deny", -len(item[1]))):
        first = calls[0]
        lines.append(f"{verdict:<5}  {len(calls):>5}  {displayed(rule)}")
        lines.append(f"       {displayed(f'{first.call.run_id}/{first.call.call_id}')}: {displayed(first.detail)}")
    return lines


def _read_recording(
    runs: list[str] | None, intents: list[str] | None, limit: int | None, workspace: Path | None, tenant: str
) -> tuple[Recording, str]:
    if runs and limit is not None:
        detail = "--limit is for the newest runs, and these are named"
        raise usage_error(detail, "leave one of the two out")

    async def operation(context: CommandContext) -> tuple[Recording, str]:
        from contextos.deployment.queries.observations import read_sessions
        from contextos.deployment.queries.run_index import MAX_RUNS_READ

        max_runs, keys = limit or MAX_RUNS_READ, context.app.keys
        recording = await read_sessions(context.store, context.tenant_id, keys, runs or (), limit=max_runs)
        return recording.of_intents(intents or ()), context.tenant_id

    return with_read_context(workspace, tenant, operation)


def _left_out_lines(recording: Recording) -> list[str]:
    """Return the lines that say which runs are not in a recording, and why."""
    lines = [line for run, reason in recording.faults.items() for line in (f"left out: {run}", *fault_lines(reason))]
    return [*lines, "older runs were not read; read more with --limit"] if recording.older else lines
