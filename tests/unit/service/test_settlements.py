"""`app.settlements`: an effect of unknown outcome is settled by a token that was signed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from contextos.deployment.operator import SettlementInput
from contextos.errors import ApprovalRefused, NotFound
from tests.http_face import OPERATOR, TENANT, HttpFace, http_face

DID_NOT = SettlementInput(False, OPERATOR, "kg:order:ord_881#snapshot_kg_1")


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with patch.dict("os.environ", SHOP_PAYMENTS="none"), http_face(tmp_path_factory.mktemp("settle")) as made:
        yield made


def test_the_run_goes_on_from_the_settlement_that_was_signed(face: HttpFace) -> None:
    settlements = face.app.settlements
    with patch.dict("os.environ", SHOP_FAILPOINT="lose_reply"):
        sent = face.send("POST", "/v1/runs", json=face.request("lost")).json()
    said = face.call(settlements.statement(TENANT, sent["run_id"], DID_NOT))
    person = face.call(face.app.deployment.ports.directory.approver(TENANT, OPERATOR))
    [key] = person.keys
    now_s = face.app.deployment.ports.clock.now_us() // 1_000_000
    token = face.signature(said.signing_input(key.kid, now_s).decode(), OPERATOR)
    with pytest.raises(ApprovalRefused):
        face.call(settlements.settle(TENANT, sent["run_id"], DID_NOT, "a.b.c"))
    face.call(settlements.settle(TENANT, sent["run_id"], DID_NOT, token))

    async def submit() -> None:
        face.app.engine.submit(TENANT, sent["run_id"])

    face.call(submit())
    assert face.ended(sent["run_id"])["ended"] is True


def test_a_run_that_is_not_there_has_no_statement(face: HttpFace) -> None:
    with pytest.raises(NotFound):
        face.call(face.app.settlements.statement(TENANT, "run_0000000000000000", DID_NOT))
