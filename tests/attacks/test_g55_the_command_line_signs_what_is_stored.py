"""Each leaf of a stored question is altered where it lies, and the approver answers with the command line: nothing is
signed, and nothing is paid. The same for what `runs settle` is about.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.deployment.operator import answer_approval, open_question
from contextos.errors import ApprovalRefused, Integrity
from contextos.trust.approvals.question import question_fault
from tests.altering_proxy import alterations
from tests.attacks.conftest import DatabaseOwner
from tests.world import APPROVER, TENANT, open_world, request, run


def rehashed(body: dict[str, Any]) -> dict[str, Any]:
    """The question of a smaller call, and every digest computed again."""
    body["args"]["amount_inr"] = 42
    body["binding"]["args_digest"] = content_address(body["args"])
    body["binding_digest"] = content_address(body["binding"])
    return body


def test_a_stored_question_with_any_altered_place_is_not_signed(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        store = world.stores.tenant(TENANT)
        entries = list(await store.read(waiting.run_id))
        asked = next(one for one in reversed(entries) if one.kind == "approval.asked")
        honest = orjson.loads(asked.body or b"")
        changed = [one.of(honest) for one in alterations(honest)]
        # Past the chain, the question itself contradicts its content or the journal, but for who is barred.
        signed = ("approval_id", "binding", "binding_digest", "args", "evidence")
        told = {name: honest[name] for name in signed}
        for one in alterations(told):
            body = {**{name: value for name, value in honest.items() if name not in signed}, **one.of(told)}
            if one.name != "add //added" and "approval_id" not in one.name:
                try:
                    fault = question_fault(TENANT, waiting.run_id, entries, asked._replace(body=canonical(body)))
                except (KeyError, TypeError, AttributeError):
                    fault = "it has not the form of a question"
                assert fault is not None, one.name
        statements: list[Any] = []

        def sign(said: Any) -> Any:
            statements.append(said)
            return {"kind": "unsafe_local"}

        # By the commands' own door, on a sample of them: each is one update of the row.
        for body in [rehashed(orjson.loads(asked.body or b"")), *changed[:: max(1, len(changed) // 25)]]:
            raw = canonical(body)
            await owner.execute(
                f"UPDATE {{journal}} SET body = {owner.blob(raw)} WHERE run = '{waiting.run_id}' AND seq = {asked.seq}"
            )
            with pytest.raises((Integrity, ApprovalRefused)):
                await answer_approval(
                    world.deployment,
                    TENANT,
                    waiting.run_id,
                    approver_id=APPROVER,
                    verdict="approved",
                    reason="",
                    binding_digest=str(body.get("binding_digest")),
                    vouch=sign,
                )
        assert statements == []
        assert world.refunds() == []
        await owner.execute(
            f"UPDATE {{journal}} SET body = {owner.blob(asked.body or b'')}"
            f" WHERE run = '{waiting.run_id}' AND seq = {asked.seq}"
        )
        assert (await open_question(world.deployment, TENANT, waiting.run_id)).content == honest
        await world.aclose()

    run(go())
