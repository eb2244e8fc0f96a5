"""The envelopes of a call, as their contract has them: what its entry states, and what the entries before it state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def whole_envelopes(log: Iterable[tuple[str, str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """The envelopes of the entries of a kind by capability. `log` has (kind, key, body) of each entry of a run."""
    of_run: dict[str, Any] = {}
    found: dict[str, dict[str, Any]] = {}
    for name, key, body in log:
        said = body.get("answer", body)
        if name == "run.received":
            request = said["request"]
            of_run = {"trace_id": request["trace"]["trace_id"], "session_id": request.get("session_id")}
        elif (name, key) == ("identity.resolved", ""):
            of_run |= {"run_id": said["claim"]["run_id"], "auth_ref": f"claim_hash:{said['claim']['claim_hash']}"}
        elif name == kind == "tool.dispatching":
            call = {"envelope_version": "contextos.tool_call.v1", "idempotency_key": None, **of_run, **said["envelope"]}
            found[call["capability_id"]] = call
        elif name == kind:
            result = {name: one for name, one in of_run.items() if name != "auth_ref"}
            empty = {"output": None, "error": None, "artifacts": [], "mutations": [], "risk_tags": []}
            result |= {"envelope_version": "contextos.tool_result.v1", **empty, **said["envelope"]}
            found[result["capability_id"]] = result
    return found
