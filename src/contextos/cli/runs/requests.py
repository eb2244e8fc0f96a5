"""`invoke`, `compile` and `runs resume`: run a request, show its compiled context, drive the runs that are due."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    about,
    document_of,
    exit_code_of,
    read_file,
    with_context,
    with_read_context,
)
from contextos.cli.layout import chopped
from contextos.cli.terminal import DEFECT, REFUSED, print_note, print_result
from contextos.contracts.encoding.display_escape import an, displayed, displayed_json
from contextos.errors import ContextOSError, InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.deployment.queries.run_view import RunView

QUESTION_INDENT: Final = 15

RequestFile = Annotated[Path, typer.Argument(metavar="FILE", help="An invokeAgent request as JSON; `-` reads stdin.")]


def invoke_command(
    file: RequestFile, workspace: WorkspaceOption = None, tenant: TenantOption = "", as_json: JsonOption = False
) -> int:
    """Run a request until it is decided or waits for a person.

    The events of a request of the mode `stream` are printed on stderr as they happen.
    """
    raw = read_file(file)

    async def operation(context: CommandContext) -> Any:
        from contextos.contracts.encoding.codec import parse
        from contextos.contracts.envelopes.run import InvokeRequest

        request = _check_tenant(file, raw, tenant)
        if parse(InvokeRequest, request).mode != "stream":
            return await context.deployment.invoke(request)
        stream = await context.app.stream(request)
        async for event in stream.follow():
            members = (event.members.get(name) for name in ("stepName", "toolCallName", "name"))
            print_note(" ".join([event.type, *(displayed(name) for name in members if name)]))
        return await stream.outcome()

    view = with_context(workspace, None, operation)
    print_result(document_of(view), outcome_lines(view), as_json=as_json)
    return exit_code_of(view)


def compile_command(
    file: RequestFile, workspace: WorkspaceOption = None, tenant: TenantOption = "", as_json: JsonOption = False
) -> int:
    """Show the context that a request is compiled to.

    No run is made and nothing is called.
    """
    raw = read_file(file)

    async def operation(context: CommandContext) -> Any:
        from contextos.deployment.preview import preview

        return await preview(context.deployment, _check_tenant(file, raw, tenant))

    result = with_read_context(workspace, None, operation)
    if result.compiled is None:
        failures = [failure.to_json() for failure in result.failures]
        lines = [f"refused: {_failure_line(failure)}" for failure in failures]
        print_result({"compiled": None, "failures": failures}, lines, as_json=as_json)
        return REFUSED
    compiled = result.compiled.to_json()
    print_result(compiled, _compiled_lines(compiled), as_json=as_json)
    return 0


def context_show_command(
    run: RunArgument,
    plan: Annotated[
        int | None, typer.Option("--plan", min=0, help="The number of the plan, from 0; without it, the last one.")
    ] = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Show the context that a run compiled, with --json its text too.

    It is derived again from the journal, and refused if it does not equal the digests on record.
    """

    async def operation(context: CommandContext) -> Any:
        from contextos.audit.replay import derived_context

        run_id = await context.run_id(run)
        key = None if plan is None else str(plan)
        return await derived_context(context.deployment, context.tenant_id, run_id, key)

    compiled = with_read_context(workspace, tenant, operation).to_json()
    print_result(compiled, _compiled_lines(compiled), as_json=as_json)
    return 0


def resume_command(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> int:
    """Drive every due run once.

    Runs of a killed process are due at once.
    """

    async def operation(context: CommandContext) -> Any:
        return await context.app.drive_due_runs()

    driven = with_context(workspace, None, operation)
    failed = [run for run in driven if run.error is not None]
    documents = [
        {"tenant_id": run.tenant_id, "run_id": run.run_id, "state": run.state}
        | ({"error": displayed(run.error)} if run.error else {})
        for run in driven
    ]
    lines = [f"{run.run_id}  {run.state}" + (f"  {displayed(str(run.error))}" if run.error else "") for run in driven]
    print_result({"driven": documents}, lines or ["nothing was due"], as_json=as_json)
    for run in failed:
        return run.error.exit_code if isinstance(run.error, ContextOSError) else DEFECT
    return 0


def act_and_drive(
    run: str,
    act: Callable[[CommandContext, str], Awaitable[object]],
    workspace: Path | None,
    tenant: str,
    *,
    as_json: bool,
) -> RunView:
    """Do `act` on the run `run` (its id, or the id of its request), drive the run on, print it, and return its view."""

    async def operation(context: CommandContext) -> RunView:
        run_id = await context.run_id(run)
        await act(context, run_id)
        return await context.drive_on(run_id)

    view = with_context(workspace, tenant, operation)
    print_result(document_of(view), outcome_lines(view), as_json=as_json)
    return view


def outcome_lines(view: Any) -> list[str]:
    """Return the state of a run that was just driven, as lines for a terminal."""
    record = view.record or {}
    if view.waiting and view.waiting["for"] == "approval":
        role = displayed(view.waiting["required_role"])
        return [
            f"{view.run_id} waits for {an(role)} ({displayed(view.waiting['gate_id'])})",
            *question_lines(view.waiting["shown"], view.waiting["binding_digest"]),
            f"next: contextos approvals approve {view.run_id} --as ID --key FILE",
        ]
    if view.waiting and view.waiting["for"] == "slot":
        user, slot = displayed(view.waiting["principal_id"]), view.waiting["slot_id"]
        return [
            f"{view.run_id} waits for {user} to fill slot {slot}",
            f"next: contextos slots answer {view.run_id} --by {user}, and then with --answer FILE",
        ]
    if view.waiting and view.waiting["for"] == "engine":
        return [
            f"{view.run_id} is {view.state} and waits for an engine to drive it",
            "next: leave it to a `contextos worker` that runs, or contextos runs resume",
        ]
    if view.waiting and view.waiting["for"] == "agent":
        return [
            f"{view.run_id} is {view.state} and waits for its agent",
            "next: the agent makes its next call, or the same call again; or it finishes the session",
        ]
    if view.waiting:
        return [
            f"{view.run_id} waits: it is not known whether {displayed(view.waiting['capability_id'])} happened",
            f"next: contextos runs settle {view.run_id} --happened (or --did-not) --evidence REF --as ID --key FILE",
        ]
    if not view.ended:
        return [f"{view.run_id} is held up ({view.state}); next: contextos runs resume"]
    if not record:
        return [f"{view.run_id} is {view.state}"]
    outcome = f", {record['outcome']}" if record.get("outcome") else ""
    lines = [f"{view.run_id} {view.state}: {record['status']}{outcome}"]
    lines += [f"  {displayed(name)}: {displayed_json(value)}" for name, value in record["outputs"].items()]
    lines += [f"  {_failure_line(failure)}" for failure in (record.get("rationale") or {}).get("failures", ())]
    return [*lines, f"next: contextos runs show {view.run_id}"]


def _failure_line(failure: dict[str, Any]) -> str:
    place = f" at {displayed(failure['pointer'])}" if failure.get("pointer") else ""
    return f"{failure['code']}{place}: {displayed(failure['detail'])}"


def question_lines(shown: dict[str, Any], binding_digest: str) -> list[str]:
    """Return the whole question to an approver as lines for a terminal, with the digest that an answer names."""
    from contextos.contracts.statements.question_text import question_text

    *text_lines, binding = question_text(shown, binding_digest)
    return [*(line for text in text_lines for line in chopped(text, QUESTION_INDENT)), binding]


def _check_tenant(file: Path, raw: bytes, tenant: str) -> bytes:
    """Return `raw` unchanged. Raises `InvalidInput` if it is not a request, or not one of the tenant in `--tenant`."""
    from contextos.contracts.encoding.codec import parse
    from contextos.contracts.envelopes.run import InvokeRequest

    with about(file):
        tenant_id = parse(InvokeRequest, raw).tenant_id
        if tenant and tenant_id != tenant:
            detail = f"the request is of `{tenant_id}`"
            raise InvalidInput(Problem("/tenant_id", "other_tenant", detail, "omit --tenant"))
    return raw


def _compiled_lines(compiled: dict[str, Any]) -> list[str]:
    report, ledger = compiled["budget_report"], compiled["context_ledger"]
    lines = [
        f"{ledger['compiled_context_hash']}",
        f"{report['tokens_used_at_compile']} tokens by {ledger['estimator']}",
        "",
    ]
    lines.append(f"  {'bucket':<10}{'allocated':>10}{'used':>8}  dropped")
    for bucket, allocated in report["tokens_allocated"].items():
        used = report["tokens_used_by_bucket"].get(bucket, 0)
        dropped = ", ".join(map(displayed, report["dropped_block_ids"].get(bucket, ())))
        lines.append(f"  {bucket:<10}{allocated:>10}{used:>8}  {dropped}".rstrip())
    lines.append("")
    for tool in compiled["manifests"].get("surface_report", ()):
        state = "shown" if tool["surfaced"] else "hidden"
        lines.append(f"  {state:<7} {displayed(tool['capability_id'])}: {displayed(tool['reason'])}")
    lines += [f"warning: {displayed(warning)}" for warning in report["warnings"]]
    return lines
