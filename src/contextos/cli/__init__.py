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

from contextos.cli import (
    approvals,
    artifacts,
    audit,
    breakers,
    demo,
    memory,
    migrating,
    requests,
    restoring,
    runs,
    sessions,
    simulate,
    slots_agent,
    slots_demo,
    slots_lint,
    slots_pick,
    slots_serve,
    slots_shelf,
    working,
)  # fmt: skip
from contextos.cli.terminal import EXIT_CODES, JSON_OPTION, USAGE, defect, fail, misused
from contextos.errors import ContextOSError, InvalidInput, Problem

__all__ = ["COMMANDS", "command_line", "main", "run"]

COMMANDS: Final[dict[str, tuple[Callable[..., int], str]]] = {
    "demo": (demo.demo, "contextos demo --yes"),
    "invoke": (requests.invoke, "contextos invoke requests/next.json"),
    "approve": (
        approvals.approve,
        "contextos approve req_next --as user_finance_lead_77 --key keys/user_finance_lead_77.key",
    ),
    "deny": (
        approvals.deny,
        "contextos deny req_deny --as user_finance_lead_77 --key keys/user_finance_lead_77.key --reason 'paid before'",
    ),
    "settle": (
        approvals.settle,
        (
            "contextos settle req_lost --did-not --evidence artifact:ticket_4711#rev_1 "
            "--as user_operator_5 --key keys/user_operator_5.key"
        ),
    ),
    "cancel": (approvals.cancel, "contextos cancel req_cancel --by user_operator_5 --reason 'asked twice'"),
    "runs": (runs.runs, "contextos runs --limit 5"),
    "sessions": (sessions.sessions, "contextos sessions"),
    "show": (runs.show, "contextos show req_large"),
    "compile": (requests.compile_request, "contextos compile requests/large.json"),
    "replay": (audit.replay, "contextos replay req_large"),
    "verify": (audit.verify, "contextos verify"),
    "export": (audit.export, "contextos export req_small req_large --out runs.jsonl"),
    "lint": (artifacts.lint, "contextos lint pack.json"),
    "schemas": (artifacts.schemas, "contextos schemas --out schemas"),
    "memory list": (memory.list_proposals, "contextos memory list"),
    "memory review": (memory.review, "contextos memory review PROPOSAL --promote --by user_ops_1"),
    "slots demo": (slots_demo.demo, "contextos slots demo"),
    "slots register-extension": (
        slots_shelf.register_extension, "contextos slots register-extension @cinatra-ai/marketing-icp-artifact",
    ),
    "slots add-artifact": (
        slots_shelf.add_artifact,
        (
            "contextos slots add-artifact icp --org org_acme --title 'Enterprise ICP' --owner user:user_ann "
            "--visibility org --by user_ann"
        ),
    ),
    "slots add-revision": (
        slots_shelf.add_revision,
        "contextos slots add-revision icp --org org_acme --file email_outreach/package.json --by user_ann",
    ),
    "slots classify": (
        slots_shelf.classify,
        "contextos slots classify icp @cinatra-ai/marketing-icp-artifact --org org_acme --by user_ann",
    ),
    "slots resolve": (
        slots_pick.resolve,
        (
            "contextos slots resolve email_outreach/cinatra/oas.json offeringContext "
            "--actor email_outreach/actor.json"
        ),
    ),
    "slots select": (
        slots_pick.select,
        (
            "contextos slots select email_outreach/cinatra/oas.json offeringContext "
            "--actor email_outreach/actor.json --run run_1 --package @cinatra-ai/email-outreach-agent"
        ),
    ),
    "slots answer": (slots_pick.answer, "contextos slots answer req_small --by usr_771"),
    "slots selections": (slots_pick.selections, "contextos slots selections run_1 --org org_acme"),
    "slots archive": (
        slots_shelf.archive, "contextos slots archive icp @cinatra-ai/marketing-icp-artifact --org org_acme",
    ),
    "slots tombstone": (slots_shelf.tombstone, "contextos slots tombstone icp --org org_acme"),
    "slots agent": (slots_agent.agent, "contextos slots agent"),
    "slots lint": (slots_lint.lint_slots, "contextos slots lint email_outreach"),
    "slots serve": (slots_serve.serve, "contextos slots serve --actor email_outreach/actor.json"),
    "simulate": (simulate.simulate, "contextos simulate --seeds 2"),
    "breakers": (breakers.breakers, "contextos breakers"),
    "resume": (requests.resume, "contextos resume"),
    "worker": (working.worker, "contextos worker"),
    "dead-letters": (working.dead_letters, "contextos dead-letters"),
    "retry": (working.retry, "contextos retry req_dead"),
    "migrate": (migrating.migrate, "contextos migrate"),
    "restored": (restoring.restored, "contextos restored --by user_operator_5"),
}  # fmt: skip
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


def run(arguments: Sequence[str]) -> int:
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
    """The `contextos` command."""
    sys.exit(run(sys.argv[1:]))
