"""Models over HTTP: what is published and used, what was spent, and one signed call."""

from __future__ import annotations

import time
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PROFILE_TYPE, ROUTING_TYPE
from contextos.deployment.acts.governance import withdraw_artifact
from contextos.errors import InvalidInput
from contextos.service.operations.models import CostQuery, ModelCostPage, PublishedModelPage, list_models, model_costs
from contextos.service.operations.operation import Asked, Paged, sealed_cursor
from contextos.testing import TEST_OPERATOR, Person
from contextos.trust.seal import seal
from contextos.workspace import App
from tests.http_face import OPERATOR, REQUESTER, HttpFace
from tests.modelled import FALLING_BACK, OF_THREE, PROFILE, RULES, modelled, profile, rules
from tests.unit.service.operations.test_packs import signed, version_of
from tests.world import TENANT


@pytest.fixture
def published(face: HttpFace) -> HttpFace:
    """A profile and rules that name it."""
    there = [one["ref"] for one in face.send("GET", "/v1/models", by=OPERATOR).json()["items"]]
    for kind, ref, body in ((PROFILE_TYPE, PROFILE, profile()), (ROUTING_TYPE, RULES, rules())):
        if ref not in there:
            envelope = {"envelope": seal(kind, canonical(body), face.app.keys, "pack")}
            sent = face.send("POST", "/v1/packs", by=OPERATOR, json=signed(face, "/v1/packs", envelope))
            assert sent.status_code == 201, sent.text
    return face


def test_profiles_and_rules_are_listed_in_pages_without_other_artifacts(published: HttpFace) -> None:
    whole = published.send("GET", "/v1/models", by=OPERATOR).json()
    large, support = whole["items"]
    assert (large["ref"], large["kind"], large["wire"], large["model"]) == (
        PROFILE,
        "model_profile",
        "scripted",
        "large",
    )
    assert (large["regions"], large["data_class"], large["used_by"]) == (["eu"], "RESTRICTED", [])
    assert (support["ref"], support["operations"], support["profiles"]) == (RULES, ["judge.plan"], [PROFILE])
    first = published.send("GET", "/v1/models", by=OPERATOR, params={"limit": 1}).json()
    rest = published.send("GET", "/v1/models", by=OPERATOR, params={"limit": 1, "cursor": first["cursor"]}).json()
    assert ([*first["items"], *rest["items"]], rest["cursor"]) == (whole["items"], None)


def test_a_check_over_http_is_signed_and_says_what_became_of_it(published: HttpFace) -> None:
    path, body = f"/v1/models/{PROFILE}/check", {"max_cost_cents": 5, "at_us": time.time_ns() // 1_000}
    assert published.send("POST", path, by=REQUESTER, json={**body, "tokens": ["a.b.c"]}).status_code == 403
    sent = signed(published, path, body)
    answer = published.send("POST", path, by=OPERATOR, json=sent)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    # Nobody brought a provider for it.
    assert (found["profile"], found["outcome"], found["cost_usd_cents"]) == (PROFILE, "unavailable", 0)
    assert "speaks no `scripted`" in found["detail"]
    again = published.send("POST", path, by=OPERATOR, json=sent)
    assert (again.status_code, again.json()["code"]) == (403, "act_used")
    old = published.send("POST", f"{path}/statement", by=OPERATOR, json={**body, "at_us": 1})
    assert (old.status_code, old.json()["errors"][0]["code"]) == (422, "not_now")
    little = published.send("POST", f"{path}/statement", by=OPERATOR, json={**body, "max_cost_cents": 0.1})
    assert (little.status_code, little.json()["errors"][0]["code"]) == (422, "too_dear")


def test_costs_of_no_calls_are_an_empty_page(face: HttpFace) -> None:
    page = face.send("GET", "/v1/models/cost", by=OPERATOR).json()
    assert (page["items"], page["unread"], page["cursor"]) == ([], [], None)
    assert face.send("GET", "/v1/models/cost?began_from=x", by=OPERATOR).status_code == 422


def test_a_withdrawn_profile_says_so_and_is_not_checked(published: HttpFace) -> None:
    envelope = {"envelope": seal(PROFILE_TYPE, canonical(profile("old")), published.app.keys, "pack")}
    published.send("POST", "/v1/packs", by=OPERATOR, json=signed(published, "/v1/packs", envelope))
    path = "/v1/packs/model.old@1.0.0/withdraw"
    body: dict[str, Any] = {"reason": "", "expected": version_of(published)}
    assert published.send("POST", path, by=OPERATOR, json=signed(published, path, body)).status_code == 200
    listed = {one["ref"]: one["withdrawn"] for one in published.send("GET", "/v1/models", by=OPERATOR).json()["items"]}
    assert listed["model.old@1.0.0"] is True
    draft = {"max_cost_cents": 5, "at_us": time.time_ns() // 1_000}
    answer = published.send("POST", "/v1/models/model.old@1.0.0/check/statement", by=OPERATOR, json=draft)
    assert answer.status_code == 404


def test_what_runs_cost_and_which_packs_use_a_model() -> None:
    with modelled(artifacts=OF_THREE, script=FALLING_BACK) as world:
        for number in range(2):
            world.run(amount=900 + number, name=f"req_{number}")
        listed = world.app.call(_listed, world.app)
        page, rest = world.app.call(_two_pages, world.app)
    users = {one.ref: one.used_by for one in listed.items}
    assert users.keys() == {RULES, *(f"model.{name}@1.0.0" for name in ("first", "spare", "open"))}
    assert set(map(tuple, users.values())) == {("ctxpack.support@5.2.0",)}
    assert (page.runs_read, rest.runs_read, rest.cursor) == (1, 1, None)
    (first, spare), cost = rest.items, sum(one.cost_usd_cents for one in rest.items)
    assert (first.profile, first.calls, first.taken, spare.taken) == ("model.first@1.0.0", 2, 1, 0)
    assert cost == pytest.approx(0.12)


def test_a_model_that_only_a_withdrawn_pack_names_is_used_by_none() -> None:
    with modelled() as world:
        assert {one.ref: one.used_by for one in world.app.call(_listed, world.app).items} == {
            PROFILE: ["ctxpack.support@5.2.0"],
            RULES: ["ctxpack.support@5.2.0"],
        }
        version = world.app.deployment.catalog(TENANT).active().version
        by = Person(TEST_OPERATOR).actor()
        of = (world.app.deployment, TENANT, "ctxpack.support@5.2.0")
        world.app.call(withdraw_artifact, *of, reason="", expected=version, by=by)
        assert [one.used_by for one in world.app.call(_listed, world.app).items] == [[], []]


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "\u00b2", "9" * 40, ""])
@pytest.mark.parametrize("began_from", [None, 1])
def test_a_cursor_of_costs_that_somebody_made_up_is_refused(began_from: int | None, number: str) -> None:
    with modelled() as world:
        world.run()
        asked = Asked(world.app, TENANT, Person(TEST_OPERATOR).actor())
        forged = sealed_cursor((TENANT, "model costs", began_from, None), number)
        other = sealed_cursor((TENANT, "model costs", 7, None), "1")
        for cursor in (*((forged,) if number else ()), other, "x"):
            query = CostQuery(limit=1, began_from=began_from, cursor=cursor)
            with pytest.raises(InvalidInput, match="of no list of this tenant"):
                world.app.call(model_costs, asked, query)


async def _listed(app: App) -> PublishedModelPage:
    return await list_models(Asked(app, TENANT, Person(TEST_OPERATOR).actor()), Paged())


async def _two_pages(app: App) -> tuple[ModelCostPage, ModelCostPage]:
    asked = Asked(app, TENANT, Person(TEST_OPERATOR).actor())
    page = await model_costs(asked, CostQuery(limit=1))
    assert page.cursor is not None
    return page, await model_costs(asked, CostQuery(limit=1, cursor=page.cursor))
