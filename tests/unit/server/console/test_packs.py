"""The pages of packs show what is published and in force, and differences as `contextos pack diff` does."""

from __future__ import annotations

import html
import json
import re

import pytest

from contextos.server.console.packs import rule_lines
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, HttpFace
from tests.unit.service.operations.test_adapters import TOOL, put_in_quarantine, tools
from tests.unit.service.operations.test_packs import PACK, published


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


def test_what_is_published_is_listed_with_where_it_is_in_force(face: HttpFace) -> None:
    page = face.page("/packs", OPERATOR).text
    for one in face.send("GET", "/v1/packs", by=OPERATOR).json()["items"]:
        assert f"/console/packs/{one['ref'].replace('@', '%40')}" in page
    assert "support.refund (service)" in page or "support.refund (dev)" in page


def test_an_artifact_shows_its_rules_and_its_whole_content(face: HttpFace) -> None:
    document = face.send("GET", f"/v1/packs/{PACK}", by=OPERATOR).json()["document"]
    page = text_of(face.page(f"/packs/{PACK}", OPERATOR).text)
    rules = document["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"]
    assert all(rule["rule_id"] in page and rule["rationale"] in page for rule in rules)
    assert "args.amount_inr > 3000" in page
    assert document["pack_meta"]["data_classification"] in page


def test_rule_lines_a_policy_are_read_like_those_of_a_pack() -> None:
    rule_of = {"rule_id": "R", "if": {"==": [{"var": "user.role"}, "intern"]}, "then": {"allow": False}}
    [rule] = rule_lines({"bundle": {"policy_dsl": {"rules": [rule_of]}}})
    assert (rule.when, rule.effect) == ('user.role == "intern"', "deny")


def test_two_versions_are_compared_field_by_field(face: HttpFace) -> None:
    other = published(face, "5.9.0")
    page = text_of(face.page(f"/packs/{other}/changes", OPERATOR, params={"before": PACK}).text)
    assert re.search(r"/pack_meta/pack_version\s+5\.2\.0\s+5\.9\.0", page)
    assert "Both have the same content" in face.page(f"/packs/{PACK}/changes?before={PACK}", OPERATOR).text
    assert other in face.page(f"/packs/{PACK}", OPERATOR).text, "it is offered to compare with"


def test_a_draft_begins_with_a_published_pack_as_its_next_version(face: HttpFace) -> None:
    page = face.page(f"/drafts?of={PACK}", OPERATOR).text
    [text] = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert json.loads(html.unescape(text))["pack_meta"]["pack_version"] == "5.3.0"
    assert 'id="publish"' in page
    assert face.page("/drafts?of=decision-catalog.support@2.1.0", OPERATOR).status_code == 404


def test_the_policies_in_force_have_a_page(face: HttpFace) -> None:
    page = face.page("/policies", OPERATOR).text
    for one in face.send("GET", "/v1/policies", by=OPERATOR).json()["items"]:
        assert one["ref"] in page
    assert "/console/do/policies.activate" in page


@pytest.mark.parametrize(
    "path", ["/packs", f"/packs/{PACK}", "/drafts", "/policies", f"/packs/{PACK}/changes?before=x"]
)
def test_who_reads_no_packs_has_no_page_of_them(face: HttpFace, path: str) -> None:
    assert [face.page(path, person).status_code for person in (REQUESTER, LEAD)] == [403, 403]


@pytest.mark.parametrize("path", [f"/packs/{PACK}", f"/packs/{PACK}/changes?before={PACK}", f"/drafts?of={PACK}"])
def test_another_tenant_has_no_page_of_an_artifact(face: HttpFace, path: str) -> None:
    assert face.page(path, OPERATOR, tenant=OTHER_TENANT).status_code == 404
    assert PACK not in face.page("/packs", OPERATOR, tenant=OTHER_TENANT).text


@pytest.mark.parametrize("ref", ["nothing@1.0.0", "%2e%2e", "a" * 600, "%00"])
def test_what_is_not_published_is_not_found(face: HttpFace, ref: str) -> None:
    assert face.page(f"/packs/{ref}", OPERATOR).status_code in (404, 422)


def test_each_tool_has_a_row_with_its_definition(face: HttpFace) -> None:
    page = html.unescape(face.page("/adapters", OPERATOR).text)
    for name, tool in tools(face).items():
        assert name in page
        assert tool["adapter_digest"] in page
        assert str(tool["definition"]["timeout_s"]) in page
        assert (f"of={name}" in page) is (tool["quarantine"] is not None)


def test_a_tool_in_quarantine_has_a_link_that_ends_it(face: HttpFace) -> None:
    key = put_in_quarantine(face)
    assert f"/console/do/adapters.release?of={TOOL}" in face.page("/adapters", OPERATOR).text
    form = html.unescape(face.page(f"/do/adapters.release?of={TOOL}", OPERATOR).text)
    assert key in form
    assert face.page("/do/adapters.release?of=adp_orders.nothing", OPERATOR).status_code == 404


def test_who_has_no_role_for_it_has_no_page(face: HttpFace) -> None:
    assert [face.page("/adapters", person).status_code for person in (REQUESTER, LEAD)] == [403, 403]
