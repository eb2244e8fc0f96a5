"""Every command: the heading it has in `contextos --help`, its function, and an example.

The docs test runs the examples in a workspace that `contextos demo --keep` made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from contextos.cli.demo import refunds
from contextos.cli.governance import artifacts, audit, memory, simulate
from contextos.cli.operations import breakers, migrate, restore, worker
from contextos.cli.runs import approvals, requests, runs, sessions
from contextos.cli.slots import agent, demo, lint, selection, serve
from contextos.cli.slots import artifacts as slot_artifacts

COMMAND_GROUPS: Final[dict[str, dict[str, tuple[Callable[..., int], str]]]] = {
    "Runs": {
        "invoke": (requests.invoke_command, "contextos invoke requests/next.json"),
        "compile": (requests.compile_command, "contextos compile requests/large.json"),
        "show": (runs.show_command, "contextos show req_large"),
        "runs": (runs.runs_command, "contextos runs --limit 5"),
        "sessions": (sessions.sessions_command, "contextos sessions"),
        "approve": (
            approvals.approve_command,
            "contextos approve req_next --as user_finance_lead_77 --key keys/user_finance_lead_77.key",
        ),
        "deny": (
            approvals.deny_command,
            (
                "contextos deny req_deny --as user_finance_lead_77 --key keys/user_finance_lead_77.key "
                "--reason 'paid before'"
            ),
        ),
        "settle": (
            approvals.settle_command,
            (
                "contextos settle req_lost --did-not --evidence artifact:ticket_4711#rev_1 "
                "--as user_operator_5 --key keys/user_operator_5.key"
            ),
        ),
        "cancel": (approvals.cancel_command, "contextos cancel req_cancel --by user_operator_5 --reason 'asked twice'"),
    },
    "Operations": {
        "resume": (requests.resume_command, "contextos resume"),
        "worker": (worker.worker_command, "contextos worker"),
        "dead-letters": (worker.dead_letters_command, "contextos dead-letters"),
        "retry": (worker.retry_command, "contextos retry req_dead"),
        "breakers": (breakers.breakers_command, "contextos breakers"),
        "migrate": (migrate.migrate_command, "contextos migrate"),
        "restored": (restore.restored_command, "contextos restored --by user_operator_5"),
    },
    "Governance": {
        "lint": (artifacts.lint_command, "contextos lint pack.json"),
        "schemas": (artifacts.schemas_command, "contextos schemas --out schemas"),
        "replay": (audit.replay_command, "contextos replay req_large"),
        "verify": (audit.verify_command, "contextos verify"),
        "export": (audit.export_command, "contextos export req_small req_large --out runs.jsonl"),
        "simulate": (simulate.simulate_command, "contextos simulate --seeds 2"),
    },
    "Memory": {
        "memory list": (memory.memory_list_command, "contextos memory list"),
        "memory review": (memory.memory_review_command, "contextos memory review PROPOSAL --promote --by user_ops_1"),
    },
    "Slots": {
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
            (
                "contextos slots resolve email_outreach/cinatra/oas.json offeringContext "
                "--actor email_outreach/actor.json"
            ),
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
    },
    "Demo": {"demo": (refunds.demo_command, "contextos demo --yes")},
}
"""By heading, the commands in the order in which the help shows them: their function and an example."""

COMMANDS: Final = {name: command for group in COMMAND_GROUPS.values() for name, command in group.items()}

NESTED: Final = {
    "memory": "Review what runs propose to remember.",
    "slots": "Context slots of agents: declare, lint, fill and audit them.",
}
"""The first words of the commands of two words, with their help."""
