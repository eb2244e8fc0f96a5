"""A process that runs other code than a run was pinned to calls none of the adapters whose code changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.tool import CallContext
from contextos.errors import Unavailable
from contextos.runtime import state_machine
from contextos.runtime.code_pins import PinnedAdapters, code_now, with_code
from contextos.runtime.environment import RunEnvironment
from contextos.trust.journal.ledger import RunJournal
from tests.world import TENANT, ManualClock, open_world, run

RUN = "run_00000000000000aa"
CALL = CallContext(TENANT, RUN, "tool_00000000000000aa", "ik_0000000000000001", 1 << 60, 1000)
PIN_SET = {
    "pins": {"ctxpack.x@1.0.0": "sha256:1", "adapter:adp_orders": "sha256:2", "adapter:adp_payments": "sha256:3"}
}


@pytest.fixture
def environment(tmp_path: Path) -> RunEnvironment:
    world = run(open_world(tmp_path))
    journal = RunJournal(TENANT, RUN, (), state_machine.transition, state_machine.START, None)
    return world.deployment.environment(TENANT, journal)


def other(environment: RunEnvironment, name: str, digest: str | None) -> RunEnvironment:
    """The same environment in a process that loaded other code."""
    return replace(environment, ports=replace(environment.ports, code={**environment.ports.code, name: digest}))


def test_a_run_pins_the_runtime_and_the_code_of_its_own_adapters(environment: RunEnvironment) -> None:
    pins = with_code(PIN_SET, environment)["pins"]
    own = {f"{kind}:{name}" for kind in ("code", "packages") for name in ("adp_orders", "adp_payments")}
    assert pins.keys() - PIN_SET["pins"].keys() == {"runtime", *own}
    assert code_now(pins, environment) == {name: pins[name] for name in pins.keys() - PIN_SET["pins"].keys()}
    assert with_code({"failure": {"code": "unknown_ref", "detail": ""}}, environment).keys() == {"failure"}


def test_code_whose_source_cannot_be_read_is_not_pinned(environment: RunEnvironment) -> None:
    failure = with_code(PIN_SET, other(environment, "code:adp_payments", None))["failure"]
    assert failure["code"] == "unknown_ref"
    assert "`code:adp_payments` cannot be pinned" in failure["detail"]


def test_an_adapter_whose_code_changed_is_neither_called_nor_asked(environment: RunEnvironment) -> None:
    pins = with_code(PIN_SET, environment)["pins"]
    args: Any = {"order_id": "ord_881", "amount_inr": 100, "currency": "INR"}
    swapped = PinnedAdapters(other(environment, "code:adp_payments", "sha256:4"), pins)
    with pytest.raises(Unavailable, match="its code changed"):
        run(swapped["adp_payments"].call("issue_refund", args, CALL))
    with pytest.raises(Unavailable, match="its code changed"):
        run(swapped["adp_payments"].lookup("issue_refund", "ik_0000000000000001", CALL))
    assert swapped["adp_payments"].describe() == environment.ports.adapters["adp_payments"].describe()
    assert run(swapped["adp_orders"].call("lookup", {"order_id": "ord_881"}, CALL)).output is not None


def test_an_adapter_without_a_pin_is_not_called_even_if_its_code_is_not_known(environment: RunEnvironment) -> None:
    unknown = other(environment, "code:adp_payments", None)
    with pytest.raises(Unavailable, match="its code changed"):
        run(PinnedAdapters(unknown, {})["adp_payments"].call("issue_refund", {}, CALL))


@pytest.mark.parametrize("shares", [True, False])
def test_calls_share_a_look_at_what_they_import_for_a_second(
    environment: RunEnvironment, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that is older, or of a clock that went back, does not count, and the recheck of a write looks anew."""
    if not shares:
        monkeypatch.setattr("contextos.runtime.code_pins.LOOK_SHARED_US", 0)
    files, looks, clock = ["sha256:1"], list[str](), ManualClock()
    packages = {"packages:adp_orders": lambda: (looks.append(files[0]), files[0])[1]}
    environment = replace(environment, ports=replace(environment.ports, packages=packages, clock=clock))
    adapters = PinnedAdapters(environment, with_code(PIN_SET, environment)["pins"])
    own = environment.ports.adapters["adp_orders"]
    assert adapters["adp_orders"] == adapters["adp_orders"] == own
    assert len(looks) == (1 if shares else 3)
    files[0] = "sha256:2"
    assert code_now(packages, environment) == {"packages:adp_orders": "sha256:2"}, "a write looks anew"
    files[0] = "sha256:1"
    assert (adapters["adp_orders"] == own) is not shares
    clock.at_us += 1_000_000
    assert adapters["adp_orders"] == own
    files[0] = "sha256:2"
    clock.at_us -= 500_000
    with pytest.raises(Unavailable, match="its code changed"):
        run(adapters["adp_orders"].call("lookup", {"order_id": "ord_881"}, CALL))
