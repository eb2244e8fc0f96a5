"""`approve`, `deny`, `settle_effect`, `request_cancel`: what people say to a run that waits.

Who answers sees the whole question first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from contextos.cli.command_context import (
    WORKSPACE,
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    document_of,
    exit_code_of,
    read_file,
    with_context,
)
from contextos.cli.runs.requests import outcome_lines, question_lines
from contextos.cli.terminal import print_note, print_result
from contextos.errors import ApprovalRefused, InvalidInput, Problem

AsOption = Annotated[str, typer.Option("--as", metavar="ID", help="Who answers: an approver of the directory.")]
OperatorOption = Annotated[
    str, typer.Option("--as", metavar="ID", help="Who settles: an operator of the directory, and not who asked.")
]
KeyOption = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="Their key: 32 bytes in hex.")]
LocalOption = Annotated[
    bool, typer.Option("--unsafe-local", help="Say it without a key, where the settings allow it; the record says so.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is kept, and part of what a key signs.")]
ByOption = Annotated[
    str, typer.Option("--by", metavar="ID", help="Who says so: who asked, the agent's owner or an operator.")
]


def approve_command(
    run: RunArgument,
    as_id: AsOption,
    key: KeyOption = None,
    unsafe_local: LocalOption = False,
    reason: ReasonOption = "",
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Approve what a run waits for, and drive it on."""
    vouch = _vouch(key, unsafe_local)
    return _answer(run, as_id, "approved", reason, vouch, workspace, tenant, as_json)


def deny_command(
    run: RunArgument,
    as_id: AsOption,
    key: KeyOption = None,
    unsafe_local: LocalOption = False,
    reason: ReasonOption = "",
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Deny what a run waits for. Asked for again, the same act is refused without asking anybody."""
    vouch = _vouch(key, unsafe_local)
    return _answer(run, as_id, "denied", reason, vouch, workspace, tenant, as_json)


def settle_command(
    run: RunArgument,
    as_id: OperatorOption,
    evidence: Annotated[
        str, typer.Option("--evidence", metavar="REF", help="From where you know, as `artifact:ticket_4711#rev_1`.")
    ],
    happened: Annotated[
        bool, typer.Option("--happened", help="The effect happened; then --output says what it gave.")
    ] = False,
    did_not: Annotated[bool, typer.Option("--did-not", help="The effect did not happen.")] = False,
    output: Annotated[
        str, typer.Option("--output", metavar="JSON", help="What the call gave back; `@FILE` reads it.")
    ] = "",
    mutation: Annotated[list[str] | None, typer.Option("--mutation", help="What it changed; may be repeated.")] = None,
    key: KeyOption = None,
    unsafe_local: LocalOption = False,
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Say whether an uncertain effect happened, and drive the run on."""
    if happened == did_not:
        raise InvalidInput(Problem("", "usage", "say either --happened or --did-not", "give exactly one of the two"))
    stated = _object(output) if output else None
    if did_not and (stated is not None or mutation):
        raise InvalidInput(Problem("", "usage", "what did not happen has no output", "drop --output and --mutation"))
    vouch = _vouch(key, unsafe_local, of="settlement")

    async def operation(context: CommandContext) -> Any:
        from contextos.operations.operator import SettlementInput, settle_effect

        run_id = await context.run_id(run)
        said = SettlementInput(happened, as_id, evidence, stated, tuple(mutation or ()))
        await settle_effect(context.deployment, context.tenant_id, run_id, said, vouch=vouch)
        return await context.drive_on(run_id)

    view = with_context(workspace, tenant, operation)
    print_result(document_of(view), outcome_lines(view), as_json=as_json)
    return exit_code_of(view)


def cancel_command(
    run: RunArgument,
    by: ByOption,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept.")] = "",
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Ask a run to stop. A dispatched effect is never interrupted."""

    async def operation(context: CommandContext) -> Any:
        from contextos.operations.operator import request_cancel

        run_id = await context.run_id(run)
        await request_cancel(context.deployment, context.tenant_id, run_id, by=by, reason=reason)
        return await context.drive_on(run_id)

    view = with_context(workspace, tenant, operation)
    print_result(document_of(view), outcome_lines(view), as_json=as_json)
    return 0 if view.state == "cancelled" else exit_code_of(view)


def signed_by(key: Path, *, of: Literal["answer", "settlement"] = "answer") -> Any:
    """Return the signer of an answer or a settlement whose key is in the file `key`."""
    from contextos.app import read_seed
    from contextos.operations.signing import answer_signer, settlement_signer

    return {"answer": answer_signer, "settlement": settlement_signer}[of](read_seed(key))


def _vouch(key: Path | None, unsafe_local: bool, *, of: Literal["answer", "settlement"] = "answer") -> Any:
    if (key is None) == (not unsafe_local):
        detail = f"the {of} is signed with the key of who gives it, or is --unsafe-local"
        raise InvalidInput(Problem("", "usage", detail, "give exactly one of --key FILE and --unsafe-local"))
    if key is not None:
        return signed_by(key, of=of)
    from contextos.operations.operator import unsafe_local_assertion as unsigned

    return unsigned


def _answer(
    run: str, as_id: str, verdict: str, reason: str, vouch: Any, workspace: Path, tenant: str, as_json: bool
) -> int:
    async def operation(context: CommandContext) -> Any:
        from contextos.operations.operator import answer_approval

        run_id = await context.run_id(run)
        view = await context.deployment.view(context.tenant_id, run_id)
        if view.waiting is None or view.waiting["for"] != "approval":
            raise ApprovalRefused("not_waiting", f"`{run_id}` waits for no approval; it is `{view.state}`")
        if not as_json:
            print_note("\n".join([f"{view.waiting['gate_id']} asks:", *question_lines(view.waiting["shown"])]))
        await answer_approval(
            context.deployment,
            context.tenant_id,
            run_id,
            approver_id=as_id,
            verdict=verdict,
            reason=reason,
            vouch=vouch,
        )
        return await context.drive_on(run_id)

    view = with_context(workspace, tenant, operation)
    print_result(document_of(view), outcome_lines(view), as_json=as_json)
    return exit_code_of(view)


def _object(text: str) -> dict[str, Any]:
    from contextos.contracts.encoding.codec import loads

    value = loads(read_file(Path(text[1:])) if text.startswith("@") else text)
    if not isinstance(value, dict):
        raise InvalidInput(Problem("/output", "not_an_object", "the output is no JSON object", "give an object"))
    return value
