"""The specification's own documents, verbatim: each request is decided or refused for a stated reason, and every other
document is validated against the contract that it is an example of.

`docs/design/specification.md` says which of its values cannot be real, and why.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.audit.replay import replay
from contextos.cli import run_command_line
from contextos.cli.demo.workspace import EXAMPLE_OPERATOR_ID, example_operator, make_workspace, seed_graph
from contextos.contracts.acts import PackPin
from tests.http_face import http_face

HERE = Path(__file__).resolve().parent
SEEDS = next((one for up in HERE.parents if (one := up / "shared" / "spec" / "seeds").is_dir()), HERE / "none")
TENANT = "tenant_acme_prod"
PACK, CATALOG = "ctxpack.support@5.2.0", "decision-catalog.support@2.1.0"

Decide = Callable[[dict[str, Any]], dict[str, Any]]
"""Send one request in a new workspace; the run's entries by kind, its state and its record."""


def kept(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text("utf-8"))


def told(state: str, record: dict[str, Any] | None, entries: Any) -> dict[str, Any]:
    return {"state": state, "record": record, "entries": [(one["kind"], one["key"], one["body"]) for one in entries]}


def body_of(run: dict[str, Any], kind: str, at: int = 0) -> dict[str, Any]:
    return [body for found, _, body in run["entries"] if found == kind][at]


async def pin_both(app: contextos.App, path: Path) -> None:
    """What an operator does for requests that name the catalog too: exactly these refs are pinned."""
    environment = app.deployment.config.environment
    pin = PackPin(refs=(PACK, CATALOG), intents=("support.refund",), environment=environment)
    expected = (await app.deployment.catalog(TENANT).active()).version
    await (await app.configuration.propose_pin(TENANT, pin, expected=expected, by=example_operator(path))).signed()


async def in_process(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    made = make_workspace(path, witness="off")
    async with contextos.open(path) as app:
        await app.initialise(TENANT, by=example_operator(path))
        await seed_graph(app, made)
        await pin_both(app, path)
        view = await app.deployment.invoke(request)
        if view.ended:
            assert (await replay(app.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        entries = await app.deployment.ports.stores.tenant(TENANT).read(view.run_id)
        bodies = [{"kind": one.kind, "key": one.key, "body": json.loads(one.body)} for one in entries]
        return told(view.state, view.record, bodies)


def by_command(capsys: pytest.CaptureFixture[str], path: Path, request: dict[str, Any]) -> dict[str, Any]:
    make_workspace(path, witness="off")
    person = ("--by", EXAMPLE_OPERATOR_ID, "--key", str(path / "keys" / f"{EXAMPLE_OPERATOR_ID}.key"))
    at = ("--workspace", str(path))
    assert run_command_line(["apply", *person, *at]) == 0
    assert run_command_line(["facts", "load", str(path / "graph.json"), *person, *at]) == 0
    pinned = ("pack", "pin", PACK, CATALOG, "--intent", "support.refund", "--expect", "2", *person, *at)
    assert run_command_line(pinned) == 0
    sent = path / "sent.json"
    sent.write_text(json.dumps(request), "utf-8")
    capsys.readouterr()
    code = run_command_line(["invoke", str(sent), *at, "--json"])
    view = json.loads(capsys.readouterr().out)
    assert code == {"waiting": 5}.get(view["state"], 1)
    assert run_command_line(["runs", "show", view["run_id"], *at, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    return told(view["state"], view.get("record"), shown["entries"])


def over_http(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    with http_face(path) as face:
        face.call(pin_both(face.app, face.path))
        sent = face.send("POST", "/v1/runs", json=request)
        assert sent.status_code == 201, sent.text
        # The requests of the specification are of the mode `stream`: the last event is the answer.
        assert sent.headers["content-type"].startswith("text/event-stream")
        answer = json.loads(sent.text.strip().splitlines()[-1].removeprefix("data: "))["value"]
        run = answer["run_id"]
        entries = face.call(face.app.deployment.ports.stores.tenant(TENANT).read(run))
        bodies = [{"kind": one.kind, "key": one.key, "body": json.loads(one.body)} for one in entries]
        return told(answer["state"], answer.get("record"), bodies)


@pytest.fixture(params=["in process", "command line", "http"])
def decide(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Decide:
    doors: dict[str, Decide] = {
        "in process": lambda body: asyncio.run(in_process(tmp_path / "w", body)),
        "command line": lambda body: by_command(capsys, tmp_path / "w", body),
        "http": lambda body: over_http(tmp_path, body),
    }
    return doors[request.param]


def taken(run: dict[str, Any]) -> dict[str, tuple[Any, str, str]]:
    """The parameters on record: value, origin and integrity by name."""
    bodies = [body for kind, _, body in run["entries"] if kind == "parameters.taken"]
    return {
        one["name"]: (one["value"], one["origin"], one["integrity"]) for body in bodies for one in body["parameters"]
    }


def shows_the_flow(run: dict[str, Any]) -> None:
    """The compiled context and the plan announce what How It Works and API Contracts show."""
    assert run["state"] == "waiting"
    compiled = body_of(run, "context.compiled")
    assert compiled["runtime_controls"]["approval_gates_active"] == ["GATE_FINANCE_APPROVAL"]
    [bundle] = compiled["manifests"]["policy_manifest"]
    assert bundle["bundle_id"] == "POLICY_RETURNS_V4"
    assert {"R_REFUND_REQUIRES_IDV", "R_HIGH_VALUE_REQUIRES_APPROVAL"} <= set(bundle["rule_ids"])
    shown, plan = kept("plan"), body_of(run, "plan.proposed")
    for ours, theirs in zip(plan["steps"], shown["steps"], strict=True):
        assert {name: ours.get(name) for name in theirs if name != "params"} == {
            name: one for name, one in theirs.items() if name != "params"
        }
    assert plan["decision_checkpoints"] == shown["decision_checkpoints"]
    assert body_of(run, "approval.asked")["gate_id"] == "GATE_FINANCE_APPROVAL"


def test_the_minimal_request_is_decided_as_it_stands(decide: Decide) -> None:
    run = decide(kept("invoke_agent_minimal"))
    shows_the_flow(run)
    assert taken(run) == {
        "order_id": ("ord_881", "context", "asserted"),
        "refund_amount": (4200, "context", "asserted"),
        "currency": ("INR", "context", "asserted"),
    }


def test_the_request_of_the_envelope_builder_is_decided_as_it_stands(decide: Decide) -> None:
    run = decide(kept("invoke_agent_live_builder"))
    shows_the_flow(run)
    assert taken(run) == {
        "order_id": ("ord_881", "message", "asserted"),
        "refund_amount": (4200, "context", "asserted"),
        "currency": ("INR", "message", "asserted"),
    }


def test_the_request_of_invoke_agent_is_refused_for_its_short_claim(decide: Decide) -> None:
    body = kept("invoke_agent")
    assert CATALOG in body["context_pack_refs"]
    refused = decide(body)
    assert (refused["state"], refused["record"]["status"]) == ("refused", "REJECTED")
    [failure] = refused["record"]["rationale"]["failures"]
    assert (failure["code"], failure["facts"]) == ("identity_refused", ["agent.identity_claim"])
    assert "`kid`" in failure["detail"]
    assert failure["detail"].endswith("or leave the claim out")


def test_the_request_of_invoke_agent_is_decided_without_what_cannot_be_real(decide: Decide) -> None:
    body = kept("invoke_agent")
    del body["agent"]["identity_claim"], body["attachments"]
    run = decide(body)
    shows_the_flow(run)
    assert taken(run) == {
        "order_id": ("ord_881", "message", "asserted"),
        "refund_amount": (9900, "evidence", "trusted"),
        "currency": ("INR", "evidence", "trusted"),
    }
    assert body_of(run, "run.pinned")["answer"]["pins"].keys() >= {*body["context_pack_refs"]}


def test_what_nothing_names_ends_the_request_with_the_name_of_the_parameter(decide: Decide) -> None:
    body = kept("invoke_agent_live_builder")
    body["input"]["message"] = "Refund my order"
    run = decide(body)
    assert run["state"] == "rejected"
    [failure] = run["record"]["rationale"]["failures"]
    assert (failure["code"], failure["facts"]) == ("parameter_missing", ["order_id"])
    assert "`input.context.order_id`" in failure["detail"]
    assert not [kind for kind, *_ in run["entries"] if kind.startswith("tool.")]


@pytest.mark.parametrize("path", sorted(HERE.glob("*.json")), ids=lambda path: path.stem)
def test_each_document_is_one_of_the_specification(path: Path) -> None:
    """Compared with the pages where they are there. That each parses is tested in `tests/unit/contracts`."""
    if not SEEDS.is_dir():
        pytest.skip("the pages of the specification are not here")
    pages = "".join(page.read_text("utf-8") for page in sorted(SEEDS.glob("*.txt")))
    text = path.read_text("utf-8").strip()
    if path.stem == "tool_result_envelope":
        text = text.removesuffix("\n}") + ",\n}"
    assert text in pages
