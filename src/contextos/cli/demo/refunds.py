"""`demo`: two refunds in a real workspace, one without an approval and one that a person approves.

The demo checks what it claims: each refund is paid once and only after its approval, the replay is equal, and the
ledgers verify. A check that fails ends the demo with exit code 3.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from contextos.cli.command_context import CommandContext, JsonOption, usage_error, with_context
from contextos.cli.demo.workspace import APPROVER, DEMO_WITNESS, EXAMPLE_OPERATOR_ID, PAYMENTS_MODULE, make_workspace
from contextos.cli.layout import folded
from contextos.cli.operations.serving import DEFAULT_PORT, console_address
from contextos.cli.terminal import DECIDED, REFUSED, Heading, print_note, print_result
from contextos.contracts.encoding.display_escape import an
from contextos.errors import Integrity

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

    from contextos.cli.demo.workspace import Workspace
    from contextos.deployment.queries.run_view import RunView

    Say = Callable[..., None]


def demo_command(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve without asking, as without a terminal.")] = False,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Keep the workspace in this directory.")
    ] = None,
    payments: Annotated[
        str, typer.Option("--payments", metavar="|".join(PAYMENTS_MODULE), help="How the shop treats a repeated call.")
    ] = PAYMENTS_MODULE[0],
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the workspace afterwards: its console shows both runs.")
    ] = False,
    browser: Annotated[bool, typer.Option("--open", help="Serve it, and open the console in a browser.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port of --serve.")] = DEFAULT_PORT,
    as_json: JsonOption = False,
) -> int:
    """Run two governed refunds from request to replay. With `--serve` a browser shows them afterwards."""
    if payments not in PAYMENTS_MODULE:
        raise usage_error(f"`{payments}` is not a payments mode", f"use one of {', '.join(PAYMENTS_MODULE)}")
    ask = sys.stdin.isatty() and sys.stdout.isatty() and not (yes or as_json)
    say: Say = (lambda *_: None) if as_json else (lambda *lines: print_result({}, lines, as_json=False))
    with ExitStack() as stack:
        # A port that is taken is refused before anything runs.
        bound = stack.enter_context(_listening(port)) if serve or browser else None
        folder = nullcontext(str(keep)) if keep else tempfile.TemporaryDirectory(prefix="contextos-demo-")
        place = stack.enter_context(folder)
        workspace = make_workspace(Path(place), payments, witness="" if keep else DEMO_WITNESS)
        small, large = with_context(
            workspace.path, workspace.tenant_id, lambda opened: _run_until_waiting(opened, workspace, say)
        )
        # The deployment is closed while the person decides: waiting is a stored state.
        approved = _ask_person(large, ask, say)
        result = with_context(
            workspace.path,
            workspace.tenant_id,
            lambda opened: _finish_demo(opened, workspace, small, large, approved, say),
        )
        result["workspace"] = str(keep) if keep else None
        say(*_next_commands(keep) if keep else () if bound else _NEXT)
        print_result(result, (), as_json=as_json)
        if bound is not None:
            sys.stdout.flush()
            _serve(workspace, bound, browser)
    return DECIDED if approved else REFUSED


def _listening(port: int) -> socket:
    """Return a listening socket of this machine. Raises `InvalidSettings`, also without the extra `service`."""
    from contextos.cli.operations.serving import require_service

    require_service()
    from contextos.server.serving import listen

    return listen(f"127.0.0.1:{port}")


def _serve(workspace: Workspace, bound: socket, browser: bool) -> None:
    """Serve the workspace until it is interrupted."""
    from contextos.cli.operations.serving import serve_context

    print_note(f"log in to the console with the token of {EXAMPLE_OPERATOR_ID}, who sees both runs")

    if browser:
        import threading
        import webbrowser

        # The socket listens already. A browser of the terminal would keep this thread.
        address = console_address(bound.getsockname()[1])
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with_context(workspace.path, None, lambda context: serve_context(context, bound))


async def _run_until_waiting(context: CommandContext, workspace: Workspace, say: Say) -> tuple[RunView, RunView]:
    """Run the small refund to its end, and the large refund to its approval question. Return their views."""
    from contextos.cli.demo.workspace import example_operator, seed_graph

    await context.app.initialise(context.tenant_id, by=example_operator(workspace.path))
    await seed_graph(context.app, workspace)
    say("1. A refund of INR 900. The rules allow it without an approval.")
    small = await context.deployment.invoke(workspace.requests["small"])
    ungated = small.state == "completed" and not (small.record or {})["approvals"]
    _expect(ungated, "INR 900 is decided without a gate", small)
    say(*_summary_lines(small), "", "2. A refund of INR 4200. A finance lead must approve it.")
    large = await context.deployment.invoke(workspace.requests["large"])
    _expect(large.waiting is not None, "INR 4200 waits for an approval", large)
    _expect(len(_refunds(workspace)) == 1, "nothing is paid before the approval", large)
    return small, large


def _ask_person(view: RunView, ask: bool, say: Say) -> bool:
    """Return whether the person at the terminal approves. With `ask` false the demo approves by itself."""
    from contextos.cli.runs.requests import question_lines

    assert view.waiting is not None, "the caller looked"
    say(f"   {view.waiting['gate_id']} asks {an(view.waiting['required_role'])}:")
    say(*question_lines(view.waiting["shown"], view.waiting["binding_digest"]))
    if ask:
        return typer.confirm(f"   You are {APPROVER}. Approve it?", default=None)
    say(f"   {APPROVER} approves (answered by the demo itself).")
    return True


async def _finish_demo(
    context: CommandContext, workspace: Workspace, small: RunView, large: RunView, approved: bool, say: Say
) -> dict[str, Any]:
    """Record the signed answer, drive the large refund to its end and audit both."""
    from contextos.cli.runs.approvals import signed_by
    from contextos.cli.runs.story import story_lines
    from contextos.deployment.operator import answer_approval
    from contextos.deployment.queries.timeline import tell_story

    assert large.waiting is not None, "the demo asked about it"
    await answer_approval(
        context.deployment,
        context.tenant_id,
        large.run_id,
        approver_id=APPROVER,
        verdict="approved" if approved else "denied",
        reason="the demo's answer",
        binding_digest=large.waiting["binding_digest"],
        vouch=signed_by(workspace.path / "keys" / f"{APPROVER}.key"),
    )
    large = await context.drive_on(large.run_id)
    _expect(large.state == ("completed" if approved else "rejected"), "the answer decides the run", large)
    repeated = await context.deployment.invoke(workspace.requests["large"])
    _expect(repeated.run_id == large.run_id, "the same request again is the same run", repeated)
    refunds = _refunds(workspace)
    amounts = [900, 4200] if approved else [900]
    paid = [refund["amount_inr"] for refund in refunds]
    _expect(paid == amounts, "each refund moves once in the shop's own books", large)
    say(*_summary_lines(large), "", Heading(f"The story of {large.run_id}"), "")
    say(*story_lines(tell_story(await context.store.read(large.run_id))), "")
    outcome = {"approved": approved, "runs": [small.run_id, large.run_id], "states": [small.state, large.state]}
    return {**outcome, "refunds": refunds, **await _audit(context, (small, large), refunds, say)}


async def _audit(
    context: CommandContext, views: tuple[RunView, ...], refunds: list[dict[str, Any]], say: Say
) -> dict[str, Any]:
    """Replay both runs and verify the ledgers. Raises `ReplayMismatch` or `ChainBroken` for a fault."""
    from contextos.audit.replay import replay
    from contextos.audit.verify import verify_tenant

    replayed = [await replay(context.deployment, context.tenant_id, view.run_id) for view in views]
    for result, view in zip(replayed, views, strict=True):
        _expect(result.record_hash == (view.record or {})["record_hash"], "the replay is equal", view)
    verified = await verify_tenant(context.store, context.tenant_id, context.app.keys)
    entries = sum(stream.entries for stream in verified)
    say(f"Replayed: {len(replayed)} of {len(views)} runs, equal to the byte.")
    say(f"Verified: {len(verified)} ledger streams, {entries} entries.")
    amounts = ", ".join(str(refund["amount_inr"]) for refund in refunds)
    say(f"The shop's own books: refunds of INR {amounts}, each paid once.")
    return {
        "replayed": [{"run_id": run.run_id, "equal": True, "compared": run.compared} for run in replayed],
        "verified": {"streams": len(verified), "entries": entries},
    }


def _refunds(workspace: Workspace) -> list[dict[str, Any]]:
    """Return every refund in the shop's own database, read directly and not through the runtime."""
    import sqlite3

    with closing(sqlite3.connect(workspace.path / "shop.db")) as shop:
        shop.row_factory = sqlite3.Row
        return [
            dict(row)
            for row in shop.execute("SELECT order_id, amount_inr, transaction_id FROM refunds ORDER BY number")
        ]


def _expect(holds: bool, claim: str, view: RunView) -> None:
    if not holds:
        raise Integrity(f"the demo expected that {claim}; run `{view.run_id}` is `{view.state}`; please report it")


def _summary_lines(view: RunView) -> list[str]:
    record = view.record or {}
    outputs = ", ".join(f"{name} {value}" for name, value in record["outputs"].items())
    return list(folded("   ", f"{record['status']}: {outputs or view.state} ({view.run_id})"))


def _next_commands(keep: Path) -> list[str]:
    return [
        "",
        "Try next:",
        f"  cd {keep}",
        "  contextos runs list",
        "  contextos runs show req_large",
        "  contextos invoke requests/next.json",
        f"  contextos approvals approve req_next --as {APPROVER} --key keys/{APPROVER}.key",
        f"  contextos serve         # the console with these runs: {console_address(DEFAULT_PORT)}",
    ]


_NEXT: Final = (
    "",
    "Keep a workspace to play with: contextos demo --keep DIR",
    f"See both runs at {console_address(DEFAULT_PORT)}: contextos demo --serve",
)
