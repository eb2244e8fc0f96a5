"""The statement of an operator about an effect of unknown outcome, in clear, and the same for people.

Source: docs/adr/0058-a-signature-is-over-what-was-shown.md; docs/design/contracts.md, "Run" (`effect_uncertain`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contextos.contracts.encoding.display_escape import displayed, displayed_json
from contextos.contracts.envelopes.identity import Settled
from contextos.contracts.envelopes.tool import StatedCall
from contextos.contracts.statements.question_text import argument_lines, question_line
from contextos.contracts.statements.questions import principal_name

SETTLEMENT_TYP: Final = "contextos-settlement+jws"
"""The `typ` of a settlement's token. It differs from the `typ` of an approval: neither can be used as the other."""


def settlement_statement(tenant_id: str, sent: StatedCall, settled: Settled) -> dict[str, Any]:
    """Build the statement that an operator signs to settle an effect of unknown outcome.

    It has the call as it was dispatched (`sent`), who asked for it, and everything that the operator states. It fits
    one call, one outcome and one person only.
    """
    return {
        "tenant_id": tenant_id,
        "run_id": sent.run_id,
        "tool_call_id": sent.tool_call_id,
        "capability_id": sent.capability_id,
        "mode": sent.approval_mode_effective,
        "args": dict(sent.args),
        "requester_chain": [principal.to_json() for principal in sent.principal_chain],
        "idempotency_key": sent.idempotency_key,
        "happened": settled.happened,
        "output": settled.output,
        "mutations": list(settled.mutations),
        "evidence_ref": settled.evidence_ref,
        "by": settled.by,
    }


def settlement_text(statement: Mapping[str, Any]) -> list[str]:
    """Return a settlement as lines of text, escaped: everything in it that is not an id of the runtime."""
    call = question_line("call", f"{displayed(statement['capability_id'])} ({displayed(statement['mode'])})")
    texts = {
        "asked by": ", ".join(displayed(principal_name(principal)) for principal in statement["requester_chain"]),
        "happened": "yes" if statement["happened"] else "no",
    }
    if statement["happened"]:
        texts["output"] = displayed_json(statement["output"], None)
        texts["changed"] = ", ".join(map(displayed, statement["mutations"])) or "nothing is named"
    texts["evidence"] = displayed(statement["evidence_ref"])
    texts["signed by"] = displayed(statement["by"])
    return [call, *argument_lines(statement["args"]), *(question_line(label, text) for label, text in texts.items())]
