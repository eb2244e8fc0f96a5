"""The command line: flat verbs over one workspace. Each command returns its exit code; `main` is the edge.

Commands import what they need when they run, so that `contextos --help` costs no more than the parser.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, Final

import typer

from contextos.cli.demo import refunds
from contextos.cli.governance import artifacts, audit, memory, simulate
from contextos.cli.operations import breakers, migrate, restore, worker
from contextos.cli.runs import approvals, requests, runs, sessions
from contextos.cli.slots import agent, demo, lint, selection, serve
from contextos.cli.slots import artifacts as slot_artifacts
from contextos.cli.terminal import EXIT_CODES, JSON_OPTION, USAGE, defect, fail, misused
from contextos.errors import ContextOSError, InvalidInput, Problem

__all__ = ["COMMANDS", "command_line", "main", "run_command_line"]

COMMANDS: Final[dict[str, tuple[Callable[..., int], str]]] = {
    "demo": (refunds.demo_command, "contextos demo --yes"),
    "invoke": (requests.invoke_command, "contextos invoke requests/next.json"),
    "approve": (
        approvals.approve_command,
        "contextos approve req_next --as user_finance_lead_77 --key keys/user_finance_lead_77.key",
    ),
    "deny": (
        approvals.deny_command,
        "contextos deny req_deny --as user_finance_lead_77 --key keys/user_finance_lead_77.key --reason 'paid before'",
    ),
    "settle": (
        approvals.settle_command,
        (
            "contextos settle req_lost --did-not --evidence artifact:ticket_4711#rev_1 "
            "--as user_operator_5 --key keys/user_operator_5.key"
        ),
    ),
    "cancel": (approvals.cancel_command, "contextos cancel req_cancel --by user_operator_5 --reason 'asked twice'"),
    "runs": (runs.runs_command, "contextos runs --limit 5"),
    "sessions": (sessions.sessions_command, "contextos sessions"),
    "show": (runs.show_command, "contextos show req_large"),
    "compile": (requests.compile_command, "contextos compile requests/large.json"),
    "replay": (audit.replay_command, "contextos replay req_large"),
    "verify": (audit.verify_command, "contextos verify"),
    "export": (audit.export_command, "contextos export req_small req_large --out runs.jsonl"),
    "lint": (artifacts.lint_command, "contextos lint pack.json"),
    "schemas": (artifacts.schemas_command, "contextos schemas --out schemas"),
    "memory list": (memory.memory_list_command, "contextos memory list"),
    "memory review": (memory.memory_review_command, "contextos memory review PROPOSAL --promote --by user_ops_1"),
    "slots demo": (demo.slots_demo_command, "contextos slots demo"),
    "slots register-extension": (
        slot_artifacts.register_extension_command,
        "contextos slots register-extension @cinatra-ai/marketing-icp-artifact",
    ),
    "slots add-artifact": (
        slot_artifacts.add_artifact_command,
        (
            "contextos slots add-artifact icp --org org_acme --title 'Enterprise ICP' --owner user:user_ann "
            "--visibility org --by user_ann"
        ),
    ),
    "slots add-revision": (
        slot_artifacts.add_revision_command,
        "contextos slots add-revision icp --org org_acme --file email_outreach/package.json --by user_ann",
    ),
    "slots classify": (
        slot_artifacts.classify_command,
        "contextos slots classify icp @cinatra-ai/marketing-icp-artifact --org org_acme --by user_ann",
    ),
    "slots resolve": (
        selection.slots_resolve_command,
        ("contextos slots resolve email_outreach/cinatra/oas.json offeringContext --actor email_outreach/actor.json"),
    ),
    "slots select": (
        selection.slots_select_command,
        (
            "contextos slots select email_outreach/cinatra/oas.json offeringContext "
            "--actor email_outreach/actor.json --run run_1 --package @cinatra-ai/email-outreach-agent"
        ),
    ),
    "slots answer": (selection.slots_answer_command, "contextos slots answer req_small --by usr_771"),
    "slots selections": (selection.slots_selections_command, "contextos slots selections run_1 --org org_acme"),
    "slots archive": (
        slot_artifacts.archive_command,
        "contextos slots archive icp @cinatra-ai/marketing-icp-artifact --org org_acme",
    ),
    "slots tombstone": (slot_artifacts.tombstone_command, "contextos slots tombstone icp --org org_acme"),
    "slots agent": (agent.slots_agent_command, "contextos slots agent"),
    "slots lint": (lint.slots_lint_command, "contextos slots lint email_outreach"),
    "slots serve": (serve.slots_serve_command, "contextos slots serve --actor email_outreach/actor.json"),
    "simulate": (simulate.simulate_command, "contextos simulate --seeds 2"),
    "breakers": (breakers.breakers_command, "contextos breakers"),
    "resume": (requests.resume_command, "contextos resume"),
    "worker": (worker.worker_command, "contextos worker"),
    "dead-letters": (worker.dead_letters_command, "contextos dead-letters"),
    "retry": (worker.retry_command, "contextos retry req_dead"),
    "migrate": (migrate.migrate_command, "contextos migrate"),
    "restored": (restore.restored_command, "contextos restored --by user_operator_5"),
}
"""Every command with its example, which the docs test runs in a workspace of `contextos demo --keep`."""

GROUPS: Final = {
    "memory": "What runs propose to remember, and a person's word on it.",
    "slots": "Typed context of agents: what they declare, how it is wired, what was picked.",
}
"""The first words of commands of two words."""

# The parser's own errors; typer names their subclass and not them.
_USAGE: Final[type[Exception]] = typer.BadParameter.__bases__[0]


def command_line() -> typer.Typer:
    """The parser of every command."""
    made = _group("Governed decisions for AI agents: run, approve, audit and replay them.", _codes())
    made.callback()(_root)
    nested = {name: _group(help_text, "") for name, help_text in GROUPS.items()}
    for name, one in nested.items():
        made.add_typer(one, name=name)
    for name, (command, example) in COMMANDS.items():
        first, _, second = name.partition(" ")
        group, verb = (nested[first], second) if second else (made, name)
        group.command(verb, epilog=f"\b\nExample:\n  {example}")(_with_text(command))
    return made


def _with_text(command: Callable[..., int]) -> Callable[..., int]:
    """The command, which gets no text that is not UTF-8. A path may be any bytes."""

    @wraps(command)
    def checked(**given: Any) -> int:
        for value in given.values():
            for one in value if isinstance(value, list) else (value,):
                if isinstance(one, str) and not _is_utf8(one):
                    raise InvalidInput(Problem("", "not_utf8", f"`{one[:64]}` is not UTF-8", "write it in UTF-8"))
        return command(**given)

    return checked


def _is_utf8(text: str) -> bool:
    """Python hands over the bytes of an argument that are not UTF-8 as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _group(help_text: str, epilog: str) -> typer.Typer:
    return typer.Typer(
        help=help_text, epilog=epilog, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )


def _codes() -> str:
    return "\b\nExit codes:\n" + "\n".join(f"  {code:<3} {meaning}" for code, meaning in EXIT_CODES.items())


def _version(wanted: bool) -> None:
    if wanted:
        from contextos import __version__

        sys.stdout.write(f"contextos {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Only what `--version` needs."""


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Never raises for what a person may get wrong."""
    as_json = JSON_OPTION in arguments
    try:
        code: Any = command_line()(list(arguments) or ["--help"], standalone_mode=False, prog_name="contextos")
        return USAGE if not arguments else code if isinstance(code, int) else 0
    except ContextOSError as error:
        return fail(error, as_json=as_json)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # Whoever read our output left; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except _USAGE as error:
        return _usage(error, as_json=as_json)
    except Exception as error:
        if os.environ.get("CONTEXTOS_DEBUG"):
            raise
        return defect(error, as_json=as_json)


def _usage(error: Any, *, as_json: bool) -> int:
    message = error.format_message().rstrip(".")
    path = error.ctx.command_path if getattr(error, "ctx", None) else "contextos"
    return misused(f"{message[:1].lower()}{message[1:]}; see `{path} --help`", as_json=as_json)


def main() -> None:
    """The `contextos` command. With `CONTEXTOS_DEBUG` it logs to stderr, in JSON lines where that is no terminal."""
    if os.environ.get("CONTEXTOS_DEBUG"):
        from contextos.telemetry.logs import configure

        configure(sys.stderr, as_json=not sys.stderr.isatty())
    sys.exit(run_command_line(sys.argv[1:]))
