"""Lists every command: its heading in `contextos --help`, its function, and an example.

The docs test runs the examples in a workspace that `contextos demo --keep` made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from contextos.cli import completion
from contextos.cli.adapters import adding, pinning, publishing
from contextos.cli.demo import init, refunds
from contextos.cli.governance import (
    artifacts,
    audit,
    declarations,
    facts,
    graph_facts,
    memory,
    new_pack,
    observations,
    packs,
    policies,
    verify,
)
from contextos.cli.mcp import serve as mcp_serve
from contextos.cli.operations import ask, breakers, keys, migrate, models, ops, restore, serving, token, worker
from contextos.cli.runs import approvals, escalations, questions, requests, runs, sessions, why
from contextos.cli.slots import artifacts as slot_artifacts
from contextos.cli.slots import demo, lint, selection, serve

_BY: Final = "--by user_operator_5 --key keys/user_operator_5.key"
_AS: Final = "--as user_operator_5 --key keys/user_operator_5.key"

_LEAD: Final = "--as user_finance_lead_77 --key keys/user_finance_lead_77.key"
_SLOT: Final = "email_outreach/cinatra/oas.json offeringContext --actor email_outreach/actor.json"
_STATED: Final = "--source artifact:crm_1#rev_1 --integrity trusted --classification INTERNAL"

COMMAND_GROUPS: Final[dict[str, dict[str, tuple[Callable[..., int], str]]]] = {
    "Begin": {
        "init": (init.init_command, "contextos init shop"),
        "demo": (refunds.demo_command, "contextos demo --yes"),
        "apply": (packs.apply_command, f"contextos apply {_BY}"),
    },
    "Decide": {
        "invoke": (requests.invoke_command, "contextos invoke requests/next.json"),
        "compile": (requests.compile_command, "contextos compile requests/large.json"),
        "worker": (worker.worker_command, "contextos worker"),
        "serve": (serving.serve_command, "contextos serve --port 8765"),
        "mcp serve": (
            mcp_serve.mcp_serve_command,
            "contextos mcp serve --agent agt_deploy --user ana --delegation tok_ana --session s1",
        ),
        "approvals list": (questions.approvals_list_command, "contextos approvals list --role finance_lead"),
        "approvals approve": (
            approvals.approve_command,
            f"contextos approvals approve req_next --binding DIGEST {_LEAD}",
        ),
        "approvals deny": (
            approvals.deny_command,
            f"contextos approvals deny req_deny --binding DIGEST {_LEAD} --reason 'paid before'",
        ),
        "approvals reask": (approvals.reask_command, f"contextos approvals reask req_void {_BY}"),
        "runs list": (runs.runs_list_command, "contextos runs list --limit 5"),
        "runs show": (runs.runs_show_command, "contextos runs show req_large"),
        "runs decision": (runs.runs_decision_command, "contextos runs decision req_large"),
        "why": (why.why_command, "contextos why req_large --tool adp_payments.issue_refund"),
        "runs sessions": (sessions.sessions_command, "contextos runs sessions"),
        "runs resume": (requests.resume_command, "contextos runs resume"),
        "runs cancel": (approvals.cancel_command, f"contextos runs cancel req_cancel {_BY}"),
        "runs settle": (
            approvals.settle_command,
            f"contextos runs settle req_lost --did-not --evidence kg:order:ord_881#snapshot_kg_1 {_AS}",
        ),
        "runs resolve": (
            escalations.resolve_command,
            f"contextos runs resolve req_resolve --rejected --reason 'paid by hand' {_BY}",
        ),
        "runs reopen": (escalations.reopen_command, f"contextos runs reopen req_reopen --to 8 --reason 'agreed' {_BY}"),
        "runs close": (escalations.close_command, f"contextos runs close req_small --reason 'filed' {_BY}"),
        "runs dead-letters": (worker.dead_letters_command, "contextos runs dead-letters"),
        "runs retry": (worker.retry_command, f"contextos runs retry req_dead {_BY}"),
        "runs export": (audit.export_command, f"contextos runs export req_small req_large --out runs.jsonl {_BY}"),
        "runs erase": (audit.erase_command, f"contextos runs erase req_large 12 {_BY}"),
    },
    "Connect": {
        "adapters add mcp": (
            adding.add_mcp_command,
            (
                "contextos adapters add mcp slots --local --read context_resolve --env PATH "
                "-- contextos slots serve --actor email_outreach/actor.json"
            ),
        ),
        "adapters add openapi": (
            adding.add_openapi_command,
            "contextos adapters add openapi shop_api shop_api.json --read getOrder",
        ),
        "adapters add a2a": (
            adding.add_a2a_command,
            "contextos adapters add a2a desk_agent --url http://127.0.0.1:8471 --internal --read say",
        ),
        "adapters sign": (
            packs.sign_command,
            "contextos adapters sign adapters/slots.json --key keys/user_operator_5.key",
        ),
        "adapters diff": (declarations.diff_command, "contextos adapters diff adapters/slots.json adapters/slots.json"),
        "adapters publish": (publishing.publish_adapter_command, "contextos adapters publish adapters/slots.json"),
        "pin-code": (pinning.pin_code_command, "contextos pin-code --yes"),
        "adapters list": (publishing.list_adapters_command, "contextos adapters list"),
        "adapters release": (
            publishing.release_command,
            f'contextos adapters release slots.context_resolve {_BY} --reason "the server put it back"',
        ),
    },
    "Audit": {
        "verify": (verify.verify_command, "contextos verify"),
        "replay": (audit.replay_command, "contextos replay req_large"),
        "context show": (requests.context_show_command, "contextos context show req_large"),
    },
    "Govern": {
        "pack list": (packs.packs_list_command, "contextos pack list"),
        "pack new": (
            new_pack.new_command,
            "contextos pack new acme.orders --who support_agent --approver finance_lead",
        ),
        "pack expand": (declarations.expand_command, "contextos pack expand acme.orders.yaml"),
        "pack diff": (declarations.diff_command, "contextos pack diff pack.json packs/support.json"),
        "pack observations": (observations.observations_command, "contextos pack observations"),
        "pack mine": (observations.mine_command, "contextos pack mine acme.mined"),
        "pack test": (observations.test_command, "contextos pack test packs/support.json"),
        "pack lint": (artifacts.lint_command, "contextos pack lint pack.json"),
        "pack sign": (packs.sign_command, "contextos pack sign pack.json --key keys/user_operator_5.key"),
        "pack publish": (packs.publish_command, f"contextos pack publish policies/house.json {_BY}"),
        "pack published": (packs.published_command, "contextos pack published"),
        "pack pin": (
            packs.pin_command,
            f"contextos pack pin ctxpack.support@5.2.0 --intent support.refund --expect VERSION {_BY}",
        ),
        "pack withdraw": (
            packs.withdraw_command,
            f"contextos pack withdraw ctxpack.support@5.2.0 --intent support.refund --expect VERSION {_BY}",
        ),
        "pack retire": (packs.retire_command, f"contextos pack retire POLICY_HOUSE@1.0.0 --expect VERSION {_BY}"),
        "policies list": (policies.policies_list_command, "contextos policies list"),
        "policies facts": (facts.policies_facts_command, "contextos policies facts"),
        "policies activate": (
            policies.activate_command,
            f"contextos policies activate POLICY_HOUSE@1.0.0 --expect VERSION {_BY}",
        ),
        "policies deactivate": (
            policies.deactivate_command,
            f"contextos policies deactivate POLICY_HOUSE@1.0.0 --expect VERSION {_BY}",
        ),
        "facts list": (graph_facts.facts_list_command, "contextos facts list customer:cus_77"),
        "facts set": (
            graph_facts.facts_set_command,
            f"contextos facts set customer:cus_77 tier '\"gold\"' {_STATED} {_BY}",
        ),
        "facts replace": (
            graph_facts.facts_replace_command,
            f"contextos facts replace customer:cus_77 tier '\"silver\"' {_STATED} {_BY}",
        ),
        "facts retract": (
            graph_facts.facts_retract_command,
            f"contextos facts retract customer:cus_77 tier --source artifact:crm_2#rev_1 {_BY}",
        ),
        "facts load": (graph_facts.facts_load_command, f"contextos facts load graph.json {_BY}"),
        "memory list": (memory.memory_list_command, "contextos memory list"),
        "memory review": (memory.memory_review_command, f"contextos memory review PROPOSAL --promote {_BY}"),
        "slots demo": (demo.slots_demo_command, "contextos slots demo"),
        "slots register-extension": (
            slot_artifacts.register_extension_command,
            f"contextos slots register-extension @cinatra-ai/marketing-icp-artifact {_BY}",
        ),
        "slots add-artifact": (
            slot_artifacts.add_artifact_command,
            (
                "contextos slots add-artifact icp --org org_acme --title 'Enterprise ICP' --owner user:user_ann "
                f"--visibility org {_BY}"
            ),
        ),
        "slots add-revision": (
            slot_artifacts.add_revision_command,
            f"contextos slots add-revision icp --org org_acme --file email_outreach/package.json {_BY}",
        ),
        "slots classify": (
            slot_artifacts.classify_command,
            f"contextos slots classify icp @cinatra-ai/marketing-icp-artifact --org org_acme {_BY}",
        ),
        "slots resolve": (selection.slots_resolve_command, f"contextos slots resolve {_SLOT}"),
        "slots select": (
            selection.slots_select_command,
            f"contextos slots select {_SLOT} --run run_1 --package @contextos-examples/email-outreach-agent",
        ),
        "slots answer": (selection.slots_answer_command, "contextos slots answer req_small --by usr_771"),
        "slots selections": (selection.slots_selections_command, "contextos slots selections run_1 --org org_acme"),
        "slots archive": (
            slot_artifacts.archive_command,
            f"contextos slots archive icp @cinatra-ai/marketing-icp-artifact --org org_acme {_BY}",
        ),
        "slots tombstone": (slot_artifacts.tombstone_command, f"contextos slots tombstone icp --org org_acme {_BY}"),
        "slots agent": (lint.slots_agent_command, "contextos slots agent"),
        "slots lint": (lint.slots_lint_command, "contextos slots lint email_outreach"),
        "slots serve": (serve.slots_serve_command, "contextos slots serve --actor email_outreach/actor.json"),
    },
    "Operate": {
        "models list": (models.models_list_command, "contextos models list"),
        "models cost": (models.models_cost_command, "contextos models cost --from 2026-11-01T00:00:00Z"),
        "models check": (models.models_check_command, f"contextos models check model.fast@1.0.0 {_BY}"),
        "key new": (keys.key_new_command, "contextos key new keys/user_new.key"),
        "key list": (keys.key_list_command, "contextos key list"),
        "key rotate": (keys.key_rotate_command, f"contextos key rotate --purpose head {_BY}"),
        "store migrate": (migrate.migrate_command, "contextos store migrate"),
        "store restored": (restore.restored_command, f"contextos store restored {_BY}"),
        "breakers list": (breakers.breakers_list_command, "contextos breakers list"),
    },
    "Develop": {
        "completion": (completion.completion_command, "contextos completion bash"),
        "token": (token.token_command, "contextos token --user usr_771 --agent agt_support"),
        "ops": (ops.ops_command, "contextos ops"),
        "ask": (ask.ask_command, "contextos ask facts.list subject=customer:cus_77"),
        "schemas": (artifacts.schemas_command, "contextos schemas --out schemas"),
    },
}
"""The commands by heading, in the order of the help. Each has its function and an example."""

COMMANDS: Final = {name: command for group in COMMAND_GROUPS.values() for name, command in group.items()}

NESTED: Final = {
    "mcp": "Serve the tools of a pack to MCP clients.",
    "runs": "List and show runs, and act on those that wait or ended.",
    "approvals": "List, approve and deny the operations that runs wait for.",
    "adapters": "Tools of foreign servers: draft, publish and check them.",
    "adapters add": "Draft the file of an adapter for a person to review.",
    "pack": "Check and publish packs, and decide which are used.",
    "policies": "The policies in force above every pack.",
    "facts": "What the graph says of a subject, and the acts that change it.",
    "context": "What a run could see, derived again.",
    "memory": "Review what runs propose to remember.",
    "slots": "Context slots of agents: declare, lint, fill and audit them.",
    "models": "Models that runs can call: their profiles, cost and state.",
    "key": "Keys of people, and of the runtime: one for each purpose.",
    "store": "The database: migrate its schema, record a restore.",
    "breakers": "The circuit breakers of capabilities that failed too often.",
}
"""The help of each command group, by its words (`adapters add`). An outer group comes before its inner group."""
