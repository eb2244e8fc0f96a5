"""The page of adapters shows each tool with its definition, and a link that ends a quarantine."""

from __future__ import annotations

import html

from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace
from tests.unit.service.operations.test_adapters import TOOL, put_in_quarantine, tools


def test_each_tool_has_a_row_with_its_definition(face: HttpFace) -> None:
    page = html.unescape(face.page("/adapters", OPERATOR).text)
    for name, tool in tools(face).items():
        assert name in page
        assert tool["adapter_digest"] in page
        assert str(tool["definition"]["timeout_s"]) in page
    assert f"of={TOOL}" not in page


def test_a_tool_in_quarantine_has_a_link_that_ends_it(face: HttpFace) -> None:
    key = put_in_quarantine(face)
    assert f"/console/do/adapters.release?of={TOOL}" in face.page("/adapters", OPERATOR).text
    form = html.unescape(face.page(f"/do/adapters.release?of={TOOL}", OPERATOR).text)
    assert key in form
    assert face.page("/do/adapters.release?of=adp_orders.nothing", OPERATOR).status_code == 404


def test_who_has_no_role_for_it_has_no_page(face: HttpFace) -> None:
    assert [face.page("/adapters", person).status_code for person in (REQUESTER, LEAD)] == [403, 403]
