"""A stored question is answered only if every digest in it follows from its content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.journal import Entry
from contextos.trust.approvals.question import question_fault
from tests.world import TENANT, open_world, request, run


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Sequence[Entry]]:
    """A run that waits for an approval: its id and its journal."""

    async def go(path: Path) -> tuple[str, Sequence[Entry]]:
        world = await open_world(path)
        view = await world.invoke(request(4200, "req_1"))
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        world.close()
        return view.run_id, entries

    made: tuple[str, Sequence[Entry]] = run(go(tmp_path_factory.mktemp("question")))
    return made


def fault_after(asked: tuple[str, Sequence[Entry]], change: Callable[[dict[str, Any]], None]) -> str | None:
    run_id, entries = asked
    entry = next(one for one in entries if one.kind == "approval.asked")
    body = orjson.loads(entry.body or b"")
    change(body)
    return question_fault(TENANT, run_id, entries, entry._replace(body=canonical(body)))


def bind_again(body: dict[str, Any]) -> None:
    binding = body["binding"]
    binding["args_digest"] = content_address(body["args"])
    binding["evidence_snapshot_hash"] = body["evidence_snapshot_hash"] = content_address(body["evidence"])
    body["binding_digest"] = content_address(binding)


def other_arguments(body: dict[str, Any]) -> None:
    body["args"]["amount_inr"] = 5


def other_evidence(body: dict[str, Any]) -> None:
    body["evidence"][0]["value"] = "another"


def other_source(body: dict[str, Any]) -> None:
    body["evidence"][0]["ref"] = "artifact:mine#rev_1"
    bind_again(body)


def evidence_left_out(body: dict[str, Any]) -> None:
    body["evidence"].pop()
    bind_again(body)


def other_origin(body: dict[str, Any]) -> None:
    body["binding"]["untrusted"] = {"amount_inr": ["planner"]}
    bind_again(body)


def other_secrets(body: dict[str, Any]) -> None:
    body["binding"]["secrets"] = {"amount_inr": ["planner"]}
    bind_again(body)


def other_instructions(body: dict[str, Any]) -> None:
    body["binding"]["instructions"] = ["attachment"]
    bind_again(body)


def other_run(body: dict[str, Any]) -> None:
    body["binding"]["run_id"] = "run_0000000000000000"
    bind_again(body)


def other_role(body: dict[str, Any]) -> None:
    body["required_role"] = "intern"


def other_binding(body: dict[str, Any]) -> None:
    body["binding"]["capability_id"] = "adp_orders.lookup"


def test_the_question_that_the_runtime_asked_has_no_fault(asked: tuple[str, Sequence[Entry]]) -> None:
    assert fault_after(asked, lambda _body: None) is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (other_arguments, "arguments have another digest"),
        (other_evidence, "evidence has another digest"),
        (other_source, "not what the run froze"),
        (evidence_left_out, "not what the run froze"),
        (other_origin, "of its arguments what the run did not find"),
        (other_secrets, "of its arguments what the run did not find"),
        (other_instructions, "of the content what the run did not find"),
        (other_run, "another run"),
        (other_role, "differs from its binding"),
        (other_binding, "binding has another digest"),
    ],
)
def test_a_question_with_one_change_has_the_fault_that_names_it(
    asked: tuple[str, Sequence[Entry]], change: Callable[[dict[str, Any]], None], fault: str
) -> None:
    assert fault in (fault_after(asked, change) or "")
