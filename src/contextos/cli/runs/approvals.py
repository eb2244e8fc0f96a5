"""`approvals approve`, `deny` and `reask`, `runs settle` and `cancel`: answers of people to a run.

An approver sees the whole question before anything is signed, and confirms it by its binding digest or at the terminal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contextos.cli.acting import ActKeyOption, ByOption, ReasonOption, named_actor, person_key
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    exit_code_of,
    read_file,
    usage_error,
)
from contextos.cli.runs.requests import act_and_drive, question_lines
from contextos.cli.terminal import print_note
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import ApprovalRefused, InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.deployment.operator import OpenQuestion

AsOption = Annotated[str, typer.Option("--as", metavar="ID", help="Id of the approver, as in the directory.")]
OperatorOption = Annotated[
    str, typer.Option("--as", metavar="ID", help="Id of the operator, as in the directory; not the requester.")
]
KeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with their private key, as `key new` makes it.")
]
LocalOption = Annotated[
    bool, typer.Option("--unsafe-local", help="Answer without a key, if the settings allow it; this is recorded.")
]
BindingOption = Annotated[
    str,
    typer.Option(
        "--binding",
        metavar="DIGEST",
        help="The question's binding, as `runs show` prints it; without it you are asked.",
    ),
]


def approve_command(
    run: RunArgument,
    as_id: AsOption,
    binding: BindingOption = "",
    key: KeyOption = None,
    unsafe_local: LocalOption = False,
    reason: ReasonOption = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Approve the operation that a run waits for.

    The run is then driven on.
    """
    vouch = _signer(key, unsafe_local)
    return _answer_question(run, as_id, "approved", binding, reason, vouch, workspace, tenant, as_json)


def deny_command(
    run: RunArgument,
    as_id: AsOption,
    binding: BindingOption = "",
    key: KeyOption = None,
    unsafe_local: LocalOption = False,
    reason: ReasonOption = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Deny the operation that a run waits for.

    The same operation in a later request is refused without asking an approver.
    """
    vouch = _signer(key, unsafe_local)
    return _answer_question(run, as_id, "denied", binding, reason, vouch, workspace, tenant, as_json)


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
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """State whether an effect of unknown outcome happened.

    The run is then driven on.
    """
    if happened == did_not:
        raise usage_error("settle needs --happened or --did-not", "pass exactly one of the two")
    value = _read_object(output) if output else None
    if did_not and (value is not None or mutation):
        raise usage_error("an effect that did not happen has no output", "omit --output and --mutation")
    vouch = _signer(key, unsafe_local, of="settlement")

    async def act(context: CommandContext, run_id: str) -> None:
        from contextos.deployment.operator import SettlementInput, settle_effect

        settlement = SettlementInput(happened, as_id, evidence, value, tuple(mutation or ()))
        await settle_effect(context.deployment, context.tenant_id, run_id, settlement, vouch=_showing(vouch, as_json))

    return exit_code_of(act_and_drive(run, act, workspace, tenant, as_json=as_json))


def cancel_command(
    run: RunArgument,
    by: ByOption,
    key: ActKeyOption = None,
    reason: ReasonOption = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Ask a run to stop. A dispatched effect is never interrupted.

    The requester, the agent's owner and operators can.
    """
    from contextos.deployment.operator import request_cancel

    actor = named_actor(by, key)

    async def act(context: CommandContext, run_id: str) -> None:
        await request_cancel(context.deployment, context.tenant_id, run_id, by=actor, reason=reason)

    view = act_and_drive(run, act, workspace, tenant, as_json=as_json)
    return 0 if view.state == "cancelled" else exit_code_of(view)


def reask_command(
    run: RunArgument,
    by: ByOption,
    key: ActKeyOption = None,
    reason: ReasonOption = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Have a void question asked again, under the packs, policies and code of now.

    The requester, the agent's owner and operators can. No answer to the old question counts.
    """
    from contextos.service.reasks import reask_question

    actor = named_actor(by, key)

    async def act(context: CommandContext, run_id: str) -> None:
        await reask_question(context.deployment, context.tenant_id, run_id, by=actor, reason=reason)

    return exit_code_of(act_and_drive(run, act, workspace, tenant, as_json=as_json))


def signed_by(key: Path, *, of: Literal["answer", "settlement"] = "answer") -> Any:
    """Return the function that signs an answer or a settlement with the private key in the file `key`."""
    from contextos.deployment.signing import answer_signer, settlement_signer

    return {"answer": answer_signer, "settlement": settlement_signer}[of](person_key(key))


def _signer(key: Path | None, unsafe_local: bool, *, of: Literal["answer", "settlement"] = "answer") -> Any:
    if (key is None) == (not unsafe_local):
        detail = f"the {of} needs the signer's key, or --unsafe-local"
        raise usage_error(detail, "pass exactly one of --key FILE and --unsafe-local")
    if key is not None:
        return signed_by(key, of=of)
    from contextos.deployment.acts.act import unsafe_local_assertion as unsigned

    return unsigned


def _showing(vouch: Any, as_json: bool) -> Any:
    """Return `vouch` as a function that first prints to stderr the whole settlement that it signs."""
    from contextos.contracts.statements.settlements import settlement_text

    def show(statement: Any) -> Any:
        print_note(json.dumps({"settlement": statement}) if as_json else "\n".join(settlement_text(statement)))
        return vouch(statement)

    return show


def _answer_question(
    run: str,
    as_id: str,
    verdict: str,
    binding: str,
    reason: str,
    vouch: Any,
    workspace: Path | None,
    tenant: str,
    as_json: bool,
) -> int:
    async def act(context: CommandContext, run_id: str) -> None:
        from contextos.deployment.operator import answer_approval, open_question, refuse_void

        question = await open_question(context.deployment, context.tenant_id, run_id)
        _show_question(question, as_json)
        if verdict == "approved":
            # Refuse a void question before anybody confirms it.
            await refuse_void(context.deployment, context.tenant_id, question)
        if not binding:
            _confirm(verdict, question.binding_digest, as_json)
        await answer_approval(
            context.deployment,
            context.tenant_id,
            run_id,
            approver_id=as_id,
            verdict=verdict,
            reason=reason,
            binding_digest=binding or question.binding_digest,
            vouch=vouch,
        )

    return exit_code_of(act_and_drive(run, act, workspace, tenant, as_json=as_json))


def _show_question(question: OpenQuestion, as_json: bool) -> None:
    """Print the question to stderr before it is answered: as lines, or as one JSON document."""
    # Imported late, so that a command that only prints help does not load the contracts.
    from contextos.contracts.statements.questions import shown_text

    content, binding = question.content, question.binding_digest
    gate_id, display = content["gate_id"], shown_text(content["binding"], content["args"], content["evidence"])
    if as_json:
        print_note(json.dumps({"question": {"gate_id": gate_id, "shown": display, "binding_digest": binding}}))
    else:
        print_note("\n".join([f"{displayed(gate_id)} asks:", *question_lines(display, binding)]))


def _confirm(verdict: str, binding: str, as_json: bool) -> None:
    """Ask at the terminal whether to sign. Raises `InvalidInput` without a terminal, `ApprovalRefused` after a no."""
    if as_json or not sys.stdin.isatty() or not sys.stderr.isatty():
        detail = "there is no terminal to confirm the question at"
        raise usage_error(detail, f"read it, then pass --binding {binding}")
    if not typer.confirm(f"Sign that this is {verdict}?", default=False, err=True):
        raise ApprovalRefused("not_confirmed", "nothing was signed; answer again when you are sure")


def _read_object(text: str) -> dict[str, Any]:
    from contextos.contracts.encoding.codec import loads

    value = loads(read_file(Path(text[1:])) if text.startswith("@") else text)
    if not isinstance(value, dict):
        raise InvalidInput(Problem("/output", "not_an_object", "the output is not a JSON object", "pass an object"))
    return value
