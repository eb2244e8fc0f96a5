"""A settlement is recorded as the capability, the bounds and the redaction rules of the run's pack allow it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from contextos.action.gateway.result_validation import MAX_OUTPUT_BYTES
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.identity import Settled
from contextos.contracts.envelopes.tool import StatedCall
from contextos.deployment.acts.settlements import recorded_settlement
from contextos.errors import InvalidInput
from tests.e2e.test_settlements import DID_NOT, HAPPENED, PAID, uncertain
from tests.world import TENANT, run


async def recorded(path: Path, **changed: Any) -> Settled:
    world, run_id = await uncertain(path)
    entries = await world.stores.tenant(TENANT).read(run_id)
    sent = [read_body(one) for one in entries if one.kind == "tool.dispatching"][-1]
    settlement = replace(HAPPENED, **changed)
    stated = asdict(settlement) | {"mutations": list(settlement.mutations)}
    try:
        envelope = StatedCall.model_validate(sent["envelope"])
        return await recorded_settlement(world.deployment, TENANT, entries, envelope, stated)
    finally:
        world.close()


def test_what_fits_the_capability_is_recorded_as_it_was_stated(tmp_path: Path) -> None:
    settled = run(recorded(tmp_path))
    assert (settled.happened, settled.by, settled.output) == (True, HAPPENED.by, PAID)


def test_what_did_not_happen_has_no_output(tmp_path: Path) -> None:
    settled = run(recorded(tmp_path, happened=False, output=None, mutations=()))
    assert (settled.happened, settled.output, settled.evidence_ref) == (False, None, DID_NOT.evidence_ref)


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ({**PAID, "refund_amount_inr": PAID["refund_amount_inr"] + 1}, "output_disagrees"),
        ({**PAID, "surplus": 1}, "schema_mismatch"),
        ({**PAID, "transaction_id": "x" * MAX_OUTPUT_BYTES}, "too_large"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(output: dict[str, Any], code: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        run(recorded(tmp_path, output=output))
    assert refused.value.problems[0].pointer.startswith("/output")
    assert refused.value.problems[0].code == code
