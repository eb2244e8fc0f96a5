"""`approve`, `deny`, `settle` and `cancel`: answers of people to a run.

An approver sees the whole question before the answer is recorded.
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

AsOption = Annotated[str, typer.Option("--as", metavar="ID", help="Id of the approver, as in the directory.")]
OperatorOption = Annotated[
    str, typer.Option("--as", metavar="ID", help="Id of the operator, as in the directory; not the requester.")
]
KeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with their private key: 32 bytes in hex.")
]
LocalOption = Annotated[
    bool, typer.Option("--unsafe-local", help="Answer without a key, if the settings allow it; this is recorded.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="The reason; it is recorded and signed.")]
ByOption = Annotated[
    str, typer.Option("--by", metavar="ID", help="Id of the requester, the agent's owner or an operator.")
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
    """Approve the operation that a run waits for.

    The run is then driven on.
    """
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
    """Deny the operation that a run waits for.

    The same operation in a later request is refused without asking an approver.
    """
    vouch = _vouch(key, unsafe_local)
    return _answer(run, as_id, "denied", reason, vouch, workspace, tenant, as_json)


def settle_command(
    run: RunArgument,
    as_id: OperatorOption,
    evidence: Annotated[
        str,
        typer.Option(
            "--evidence", metavar="REF", help="Reference to the evidence, such as `artifact:ticket_4711#rev_1`."
        ),
    ],
    happened: Annotated[
        bool, typer.Option("--happened", help="The effect happened; --output is what the call returned.")
    ] = False,
    did_not: Annotated[bool, typer.Option("--did-not", help="The effect did not happen.")] = False,
    output: Annotated[
        str, typer.Option("--output", metavar="JSON", help="What the call returned; `@FILE` reads a file.")
    ] = "",
    mutation: Annotated[
        list[str] | None, typer.Option("--mutation", help="Something that it changed. Repeatable.")
    ] = None,
    key: KeyOption = None,
    unsafe_local: LocalOption = False,
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """State whether an effect of unknown outcome happened.

    The run is then driven on.
    """
    if happened == did_not:
        raise InvalidInput(Problem("", "usage", "settle needs --happened or --did-not", "pass exactly one of the two"))
    stated = _object(output) if output else None
    if did_not and (stated is not None or mutation):
        raise InvalidInput(
            Problem("", "usage", "an effect that did not happen has no output", "omit --output and --mutation")
        )
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
    reason: Annotated[str, typer.Option("--reason", help="The reason; it is recorded.")] = "",
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
        detail = f"the {of} needs the signer's key, or --unsafe-local"
        raise InvalidInput(Problem("", "usage", detail, "pass exactly one of --key FILE and --unsafe-local"))
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
            raise ApprovalRefused("not_waiting", f"`{run_id}` does not wait for an approval; it is `{view.state}`")
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
        raise InvalidInput(Problem("/output", "not_an_object", "the output is not a JSON object", "pass an object"))
    return value
