"""An operator settles an effect of unknown outcome in Debian's Chromium, over the call in clear."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import LogIn
from tests.e2e.test_console_signing import read_statement, sign
from tests.http_face import OPERATOR, HttpFace, http_face

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    """A shop whose payments promise nothing."""
    with patch.dict("os.environ", SHOP_PAYMENTS="none"), http_face(tmp_path_factory.mktemp("settling")) as made:
        yield made


def test_an_operator_settles_what_did_not_happen_from_the_page_of_the_run(face: HttpFace, log_in: LogIn) -> None:
    with patch.dict("os.environ", SHOP_FAILPOINT="lose_reply"):
        sent = face.send("POST", "/v1/runs", json=face.request("lost")).json()
    assert sent["waits_for"] == "settlement"
    page = log_in(OPERATOR, f"/runs/{sent['run_id']}")
    page.get_by_role("link", name="Settle the effect").click()
    page.select_option("#field-happened", "false")
    page.fill("#field-evidence_ref", "kg:order:ord_881#snapshot_kg_1")
    said = read_statement(page, face)
    assert ("adp_payments.issue_refund" in said, "args.order_id" in said, "ord_881" in said) == (True, True, True)
    sign(page)
    expect(page.locator(".answered")).to_contain_text(sent["run_id"])
    assert face.ended(sent["run_id"])["ended"] is True
