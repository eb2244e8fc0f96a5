"""`demo`: one refund that needs nobody and one that a person approves, from request to replay, in a real workspace.

It holds itself to what it promises: a refund moves once and only after the approval, the replay is equal, the ledgers
verify. An expectation that fails ends it with exit code 3.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.opening import JsonOption, Session, within
from contextos.cli.terminal import REFUSED, Heading, give
from contextos.cli.workspace import APPROVER, PAYMENTS, make
from contextos.errors import Integrity, InvalidInput, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from contextos.cli.workspace import Workspace
    from contextos.deployment import RunView

    Say = Callable[..., None]


def demo(
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve without asking; so it is where there is no terminal.")
    ] = False,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Keep the workspace there, to play with.")
    ] = None,
    payments: Annotated[
        str, typer.Option("--payments", metavar="|".join(PAYMENTS), help="What the shop promises about repeated calls.")
    ] = PAYMENTS[0],
    as_json: JsonOption = False,
) -> int:
    """Run governed refunds from request to replay and tell the story."""
    if payments not in PAYMENTS:
        raise InvalidInput(
            Problem("", "usage", f"`{payments}` is no payments mode", f"use one of {', '.join(PAYMENTS)}")
        )
    ask = sys.stdin.isatty() and sys.stdout.isatty() and not (yes or as_json)
    say: Say = (lambda *_: None) if as_json else (lambda *lines: give({}, lines, as_json=False))
    with nullcontext(str(keep)) if keep else tempfile.TemporaryDirectory(prefix="contextos-demo-") as where:
        workspace = make(Path(where), payments)
        told: dict[str, Any] = within(
            workspace.path, workspace.tenant_id, lambda opened: _play(opened, workspace, ask, say)
        )
    told["workspace"] = str(keep) if keep else None
    if keep:
        say(*_next_commands(keep))
    else:
        say("", "Keep a workspace to play with: contextos demo --keep DIR")
    give(told, (), as_json=as_json)
    return 0 if told["approved"] else REFUSED


async def _play(session: Session, workspace: Workspace, ask: bool, say: Say) -> dict[str, Any]:
    from contextos.audit import replay, verify_tenant
    from contextos.cli.timeline import lines, tell
    from contextos.cli.workspace import seed

    await seed(session.app, workspace)
    say("1. A refund of INR 900. The rules leave it to the agent, so nobody is asked.")
    small = await session.deployment.invoke(workspace.requests["small"])
    _expect(
        small.state == "completed" and not (small.record or {})["approvals"], "INR 900 is decided without a gate", small
    )
    say(f"   {_short(small)}", "")

    say("2. A refund of INR 4200. A finance lead has to agree.")
    large = await session.deployment.invoke(workspace.requests["large"])
    _expect(large.state == "waiting" and large.waiting is not None, "INR 4200 waits for an approval", large)
    _expect(len(_refunds(workspace)) == 1, "nothing is paid before the approval", large)
    approved = await _answer(session, workspace, large, ask, say)
    large = await session.drive_on(large.run_id)
    _expect(large.state == ("completed" if approved else "rejected"), "the answer decides the run", large)
    again = await session.deployment.invoke(workspace.requests["large"])
    _expect(again.run_id == large.run_id, "the same request again is the same run", again)
    say(f"   {_short(large)}", "")

    refunds = _refunds(workspace)
    amounts = [900, 4200] if approved else [900]
    _expect([one["amount_inr"] for one in refunds] == amounts, "each refund moves once in the shop's own books", large)
    replayed = [await replay(session.deployment, session.tenant_id, view.run_id) for view in (small, large)]
    _expect(
        all(
            one.record_hash == (view.record or {})["record_hash"]
            for one, view in zip(replayed, (small, large), strict=True)
        ),
        "the replay is equal",
        large,
    )
    verified = await verify_tenant(session.store, session.tenant_id, session.app.keys)
    entries = await session.store.read(large.run_id)
    say(Heading(f"The story of {large.run_id}"), "", *lines(tell(entries)), "")
    say(f"Replayed: {len(replayed)} of 2 runs are equal, {sum(one.compared for one in replayed)} entries compared.")
    say(f"Verified: {len(verified)} ledger streams, {sum(one.entries for one in verified)} entries.")
    say(f"The shop's own books: {len(refunds)} refunds, {', '.join(str(one['amount_inr']) for one in refunds)} INR.")
    return {
        "approved": approved,
        "runs": [small.run_id, large.run_id],
        "states": [small.state, large.state],
        "refunds": refunds,
        "replayed": [{"run_id": one.run_id, "equal": True, "compared": one.compared} for one in replayed],
        "verified": {"streams": len(verified), "entries": sum(one.entries for one in verified)},
    }


async def _answer(session: Session, workspace: Workspace, view: RunView, ask: bool, say: Say) -> bool:
    """Ask on the terminal, or approve; signed with the approver's key either way."""
    from contextos.cli.approvals import signed_by
    from contextos.cli.requests import question_lines
    from contextos.desk import answer

    assert view.waiting is not None, "the caller looked"
    say(
        f"   {view.waiting['gate_id']} asks a {view.waiting['required_role']}:",
        *(f" {line}" for line in question_lines(view.waiting["shown"])),
    )
    approved = typer.confirm(f"   You are {APPROVER}. Approve it?", default=True) if ask else True
    if not ask:
        say(f"   {APPROVER} approves (answered by the demo itself).")
    await answer(
        session.deployment,
        session.tenant_id,
        view.run_id,
        approver_id=APPROVER,
        verdict="approved" if approved else "denied",
        reason="the demo's answer",
        vouch=signed_by(workspace.path / "keys" / f"{APPROVER}.key"),
    )
    return approved


def _refunds(workspace: Workspace) -> list[dict[str, Any]]:
    """Every refund in the shop's own database, read past the runtime."""
    with closing(sqlite3.connect(workspace.path / "shop.db")) as shop:
        shop.row_factory = sqlite3.Row
        return [
            dict(row)
            for row in shop.execute("SELECT order_id, amount_inr, transaction_id FROM refunds ORDER BY number")
        ]


def _expect(holds: bool, what: str, view: RunView) -> None:
    if not holds:
        raise Integrity(f"the demo expected that {what}; run `{view.run_id}` is `{view.state}`; please report it")


def _short(view: RunView) -> str:
    record = view.record or {}
    outputs = ", ".join(f"{name} {value}" for name, value in record["outputs"].items())
    return f"{view.run_id} {view.state}: {record['status']}" + (f" ({outputs})" if outputs else "")


def _next_commands(keep: Path) -> list[str]:
    return [
        "",
        "Play on:",
        f"  cd {keep} && export CONTEXTOS_WORKSPACE=.",
        "  contextos runs",
        "  contextos show req_large",
        "  contextos invoke requests/next.json",
        f"  contextos approve req_next --as {APPROVER} --key keys/{APPROVER}.key",
    ]
