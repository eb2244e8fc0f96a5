"""A small deployment agent for tests of packs: its tools, and a way to decide single calls by the expanded rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from contextos import Key, read, toolset, write
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.policy import CapabilityView, PolicyDecision
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import merge
from contextos.control.vocabulary import pack_vocabulary
from contextos.packs.declaration import PackDeclaration
from contextos.packs.expansion import Expansion, expand
from contextos.trust.policy.policy_set import PolicySet, compile_policy

TENANT = "tenant_deploy"
WHO = "deployer"


class Build(BaseModel):
    """A build."""

    green: bool
    blast_radius: int


@read(integrity="trusted", produces="ci")
def ci_status(service: str) -> Build:
    """The newest build of a service."""
    return Build(green=True, blast_radius=len(service))


@write(risk="irreversible", idempotency="keyed")
def rollback(service: str, env: Literal["prod", "staging"], key: Key) -> str:
    """Put the build before back."""
    return f"{service} {env} {key}"


@write(risk="reversible", idempotency="keyed")
def scale(service: str, replicas: int, key: Key) -> int:
    """Change the number of replicas."""
    return replicas


TOOLS = toolset("deploy", [ci_status, rollback, scale])
DEFINITIONS = (TOOLS.describe(),)
PLAN = [{"tool": "ci_status"}, {"tool": "rollback"}, {"tool": "scale"}]
INTENT = {"steps": PLAN}


def declared(**fields: Any) -> PackDeclaration:
    """A declaration with a fixed plan of all three tools, and these fields."""
    body = {"name": "deploy", "version": "1.0.0", "tenant": TENANT, "who": [WHO], "intents": {"deploy.change": INTENT}}
    return parse(PackDeclaration, {**body, **fields})


def expanded(**fields: Any) -> Expansion:
    return expand(declared(**fields), DEFINITIONS)


def policies(expansion: Expansion, definitions: tuple[AdapterDefinition, ...] = DEFINITIONS) -> PolicySet:
    merged = merge(expansion.pack)
    return compile_policy(
        list(merged.bundles.values()),
        gates=merged.gates,
        must_refuse=(),
        must_escalate=(),
        vocabulary=pack_vocabulary(expansion.pack, merged.specs, definitions),
    )


def decided(
    rules: PolicySet,
    tool: str,
    args: Mapping[str, Any],
    evidence: Mapping[str, Any],
    *,
    role: str = WHO,
    intent: str = "deploy.change",
    write: bool = True,
) -> PolicyDecision:
    """What the rules say about one call."""
    facts = {
        "request": {"intent": intent, "mode": "stream", "message": "", "request_id": "req_1"},
        "user": {"user_id": "user_1", "role": role},
        "agent": {"agent_id": "agent_1"},
        "tenant": {"tenant_id": TENANT},
        "run": {"run_id": "run_1", "environment": "dev"},
        "args": dict(args),
        "provenance": dict.fromkeys(args, "literal"),
        "evidence": dict(evidence),
    }
    view = CapabilityView(tool, "destructive" if write else "read_only", {"capability_id": tool})
    return rules.decide("execute", facts, capability=view, granted=True, decision_id="pol_1")
