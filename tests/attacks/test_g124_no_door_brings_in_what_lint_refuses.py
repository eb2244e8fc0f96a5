"""G124: what `pack lint --adapters` refuses comes into force on no door, and what stays beside a new pin is said there.

The doors are the command line, HTTP and Python. Something may be published before it can be used.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.key_files import KeyFiles
from contextos.cli.demo.workspace import HOUSE_POLICY, example_operator
from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import POLICY_TYPE
from contextos.errors import InvalidArtifact
from contextos.store.shared.clock import SystemClock
from contextos.trust.seal import seal
from contextos.workspace import open_unchecked
from contextos.workspace.settings import Settings
from tests.attacks.faults import FAULTS, Plant, Workspace
from tests.attacks.shop import Shop
from tests.http_face import OPERATOR, HttpFace, http_face
from tests.unit.service.operations.test_packs import signed, version_of
from tests.world import INTENT, TENANT

OLD, NEW = "ctxpack.support@5.2.0", "ctxpack.support@5.3.0"
REFUND = "adp_payments.issue_refund"
ONE_STORE = pytest.mark.parametrize("stores", ["sqlite"], indirect=True)


def without_a_reason(one: Workspace) -> None:
    for permission in one.tools["permissions"]:
        permission.pop("without_sum", None)


IN_VAIN: dict[str, tuple[Plant, str]] = {
    **{
        name: FAULTS[name][:2]
        for name in (
            "a gate whose role nobody holds",
            "more tool calls than the platform allows",
            "agents that are retired",
        )
    },
    "money without a sum": (without_a_reason, "money_without_sum"),
}


def next_version(path: Path, plant: Plant) -> None:
    """The next version of the pack, with a fault, signed by its author."""
    workspace = Workspace.read(path)
    workspace.pack["pack_meta"]["pack_version"] = NEW.partition("@")[2]
    plant(workspace)
    workspace.write(path)


def stricter(one: Workspace) -> None:
    one.tools["permissions"][2]["arg_constraints"]["amount_inr"]["max"] = 10


def places(problems: Any) -> set[tuple[str, str]]:
    return {(one["code"], one["pointer"]) for one in problems}


def linted(shop: Shop) -> set[tuple[str, str]]:
    return places(shop.say("pack", "lint", "--adapters", str(shop.path / "pack.json")).json["problems"])


def expected(shop: Shop) -> list[str]:
    return ["--expect", str(shop.say("pack", "list").json["version"]), *shop.by]


def pinned(shop: Shop) -> list[str]:
    return [ref for pin in shop.say("pack", "list").json["packs"] for ref in pin["refs"]]


def publish(shop: Shop, file: Path) -> None:
    sent = shop.say("pack", "publish", str(file), *shop.by)
    assert sent.code == 0, sent.out


def policy(shop: Shop, **bundle: Any) -> Path:
    """A signed policy of the tenant."""
    keys, file = KeyFiles(shop.path / "keys", SystemClock()), shop.path / "policies" / "more.json"
    body = {
        **HOUSE_POLICY,
        "tenant": TENANT,
        "bundle": {**HOUSE_POLICY["bundle"], "bundle_id": "POLICY_MORE", **bundle},
    }
    file.write_text(json.dumps(seal(POLICY_TYPE, canonical(body), keys, "pack")))
    return file


@ONE_STORE
@pytest.mark.parametrize("name", IN_VAIN)
def test_the_command_pins_nothing_that_lint_refuses(name: str, initialised: Shop) -> None:
    plant, code = IN_VAIN[name]
    next_version(initialised.path, plant)
    publish(initialised, initialised.path / "packs" / "support.json")
    refused = initialised.say("pack", "pin", NEW, "--intent", INTENT, *expected(initialised))
    assert refused.code == 2, refused.out
    assert places(refused.json["error"]["problems"]) == linted(initialised)
    assert code in {one for one, _ in linted(initialised)}
    assert pinned(initialised) == [OLD]


@ONE_STORE
def test_apply_pins_nothing_that_was_published_before_it(initialised: Shop) -> None:
    next_version(initialised.path, IN_VAIN["a gate whose role nobody holds"][0])
    publish(initialised, initialised.path / "packs" / "support.json")
    applied = initialised.say("apply", *initialised.by)
    assert applied.code == 2, applied.out
    assert places(applied.json["error"]["problems"]) == linted(initialised)
    assert pinned(initialised) == [OLD]


@ONE_STORE
def test_the_command_puts_no_policy_in_force_that_lint_refuses(initialised: Shop) -> None:
    rule = HOUSE_POLICY["bundle"]["policy_dsl"]["rules"][0]
    publish(initialised, policy(initialised, policy_dsl={"language": "jsonlogic", "rules": [rule, rule]}))
    refused = initialised.say("policies", "activate", "POLICY_MORE@1.0.0", *expected(initialised))
    assert refused.code == 2, refused.out
    assert places(refused.json["error"]["problems"]) == {("duplicate", "/bundle/policy_dsl/rules/1/rule_id")}
    assert initialised.say("policies", "list").json["policies"] == []


@ONE_STORE
def test_the_sum_that_limits_the_money_of_a_pack_in_force_stays(initialised: Shop) -> None:
    total = {"capability": REFUND, "aggregate": "sum", "of": "amount_inr", "over": "user", "window_s": 86_400}
    condition = {">": [{"var": "history.refunded"}, 10_000]}
    rule = {"rule_id": "R_SUM", "applies_to": {"capability": REFUND}, "if": condition, "then": {"allow": False}}
    publish(
        initialised,
        policy(initialised, history={"refunded": total}, policy_dsl={"language": "jsonlogic", "rules": [rule]}),
    )
    activated = initialised.say("policies", "activate", "POLICY_MORE@1.0.0", *expected(initialised))
    assert activated.code == 0, activated.out
    next_version(initialised.path, without_a_reason)
    assert initialised.say("apply", *initialised.by).code == 0
    refused = initialised.say("policies", "deactivate", "POLICY_MORE@1.0.0", *expected(initialised))
    assert refused.code == 2, refused.out
    assert {one["code"] for one in refused.json["error"]["problems"]} == {"money_without_sum"}
    assert initialised.say("pack", "withdraw", NEW, "--intent", INTENT, *expected(initialised)).code == 0
    assert initialised.say("policies", "deactivate", "POLICY_MORE@1.0.0", *expected(initialised)).code == 0


def published(face: HttpFace) -> None:
    envelope = json.loads((face.path / "packs" / "support.json").read_text())
    body = signed(face, "/v1/packs", {"envelope": envelope})
    assert face.send("POST", "/v1/packs", by=OPERATOR, json=body).status_code == 201


def test_http_pins_nothing_that_lint_refuses(tmp_path: Path) -> None:
    with http_face(tmp_path) as face:
        draft = {"refs": [NEW], "intents": [INTENT], "expected": version_of(face)}
        next_version(face.path, IN_VAIN["a gate whose role nobody holds"][0])
        published(face)
        for path, body in (("/v1/pins/statement", draft), ("/v1/pins", {**draft, "tokens": [face.token(OPERATOR)]})):
            refused = face.send("POST", path, by=OPERATOR, json=body)
            assert refused.status_code == 422, refused.text
            assert {one["code"] for one in refused.json()["errors"]} == {"nobody_holds"}
        [pin] = face.send("GET", "/v1/pins", by=OPERATOR).json()["items"]
        assert pin["refs"] == [OLD]


def test_http_says_what_stays_beside_a_new_pin(tmp_path: Path) -> None:
    with http_face(tmp_path) as face:
        next_version(face.path, stricter)
        published(face)
        draft = {"refs": [NEW], "intents": [INTENT], "expected": version_of(face)}
        done = face.send("POST", "/v1/pins", by=OPERATOR, json=signed(face, "/v1/pins", draft))
        assert (done.status_code, done.json()["version"]) == (201, version_of(face)), done.text
        assert [(one["ref"], one["code"]) for one in done.json()["unmatched"]] == [(NEW, "beside")]
        assert done.json()["unmatched"] == face.send("GET", "/v1/policies", by=OPERATOR).json()["unmatched"]
        end = {**draft, "refs": [OLD], "expected": version_of(face)}
        ended = face.send("POST", "/v1/pins/withdraw", by=OPERATOR, json=signed(face, "/v1/pins/withdraw", end))
        assert ended.json() == {"version": version_of(face), "unmatched": []}


@ONE_STORE
def test_a_program_pins_nothing_that_lint_refuses(initialised: Shop) -> None:
    next_version(initialised.path, IN_VAIN["more tool calls than the platform allows"][0])
    envelope = json.loads((initialised.path / "packs" / "support.json").read_text())
    by = example_operator(initialised.path)

    async def act() -> list[str]:
        app = await open_unchecked(Settings.read(initialised.path))
        try:
            await app.publish(envelope, by=by)
            pin = PackPin(refs=(NEW,), intents=(INTENT,), environment="dev")
            active = await app.artifacts.active(TENANT)
            with pytest.raises(InvalidArtifact, match="max_tool_calls"):
                await app.configuration.propose_pin(TENANT, pin, expected=active.version, by=by)
            return [ref for one in (await app.artifacts.active(TENANT)).packs for ref in one.refs]
        finally:
            app.close()

    assert asyncio.run(act()) == [OLD]


@ONE_STORE
def test_a_program_hears_what_stays_beside_what_it_pinned(initialised: Shop, caplog: pytest.LogCaptureFixture) -> None:
    next_version(initialised.path, stricter)

    async def act() -> None:
        async with contextos.open(initialised.path) as app:
            caplog.clear()
            await app.initialise(TENANT, by=example_operator(initialised.path), keep=True)

    asyncio.run(act())
    said = [getattr(one, "problem", "") for one in caplog.records]
    assert [one for one in said if f"`{OLD}` beside it" in one], said
