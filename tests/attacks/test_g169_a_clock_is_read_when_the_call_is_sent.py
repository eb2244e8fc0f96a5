"""G169: no write is made on a clock or evidence that an earlier drive read: neither after an outage of the issuer of
its credential, nor as a later attempt of a call that was certainly never sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import contextos
from contextos.audit.replay import replay
from contextos.contracts.ports.credentials import Credential
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.errors import Unavailable
from contextos.testing import MovableClock, Person, in_memory
from tests.authorization_server import adapter_of, authorization_server, egress_of, file_of, port_of, shop, trusts
from tests.authorization_server import pack_of as shop_pack
from tests.authorization_server import people as shop_people
from tests.deployers import TENANT, people

DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
CLOSED = [{"tools": ["pay"], "when": "not clock.office.open", "because": "closed"}]
PAY = ("shop.pay", {"body": {"amount": 5}})


def closing_soon(clock: MovableClock) -> dict[str, Any]:
    """Business hours that end in three minutes, by a clock that is moved on to noon."""
    now = datetime.fromtimestamp(clock.now_us() / 1e6, UTC)
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    clock.advance(((noon if noon >= now else noon + timedelta(days=1)) - now).total_seconds())
    return {"office": {"zone": "Etc/UTC", "days": DAYS, "opens": "00:00", "closes": "12:03"}}


class Issuer:
    """A token endpoint that can be down."""

    def __init__(self, inner: Any, clock: MovableClock) -> None:
        self.inner, self.clock, self.is_down = inner, clock, True

    @property
    def issuer(self) -> str:
        return str(self.inner.issuer)

    async def exchange(self, asked: Any) -> Credential:
        if self.is_down:
            raise Unavailable("issuer", "down")
        until_us = self.clock.now_us() + 60_000_000
        return Credential("tok-0123456789abcdef", asked.scopes, until_us, "jti_hash:sha256:" + "b2a1" * 16)


@contextmanager
def approved_while_down() -> Iterator[tuple[Any, Any, MovableClock, Issuer, Any]]:
    clock = MovableClock()
    with authorization_server() as server, shop() as api:
        pack = shop_pack(adapter_of(file_of(api.url)), business_hours=closing_soon(clock), deny=CLOSED)
        issuer = Issuer(port_of(server), clock)
        with in_memory(
            lint=False,
            packs=[pack],
            directory=shop_people(),
            credentials=issuer,
            egress=egress_of(api.url),
            clock=clock,
        ) as app:
            trusts(server, app)
            gate = app.gate(session="s1", user="ana", token="tok_ana", agent="agt_shop", tenant="acme")
            assert isinstance(gate.call(*PAY, call_id="pay"), Waiting)
            with pytest.raises(Unavailable, match="nothing was sent"):
                app.call(Person("omar").answer, app, gate.view())
            with pytest.raises(Unavailable, match="nothing was sent"):
                gate.call(*PAY, call_id="pay")
            yield app, gate, clock, issuer, api


@pytest.mark.parametrize(
    ("later_s", "code", "says"), [(1_800, "policy_denied", "closed"), (7_200, "approval_void", "deadline")]
)
def test_an_approved_payment_is_judged_by_the_clock_of_the_drive_that_has_the_credential(
    later_s: int, code: str, says: str
) -> None:
    with approved_while_down() as (app, gate, clock, issuer, api):
        clock.advance(later_s)
        issuer.is_down = False
        answer = gate.call(*PAY, call_id="pay")
        assert isinstance(answer, Refused), answer
        assert (answer.reasons[0].code, says in repr(answer)) == (code, True), answer
        assert api.seen == []
        gate.finish("denied")
        assert app.call(replay, app.deployment, "acme", gate.run_id).compared


def test_an_issuer_that_is_back_in_time_delays_the_payment_alone() -> None:
    with approved_while_down() as (_, gate, clock, issuer, api):
        clock.advance(30)
        issuer.is_down = False
        gate.call(*PAY, call_id="pay")
        assert len(api.seen) == 1


@contextmanager
def paying(strategy: str) -> Iterator[tuple[Any, Any, MovableClock, list[str], list[bool]]]:
    """A bank that is down, and a session whose payment it refused: `made` has what it did."""
    clock, down, made = MovableClock(), [True], list[str]()

    @contextos.write(risk="reversible", idempotency="keyed", destinations=[])
    def pay_keyed(name: str, key: contextos.Key) -> bool:
        """Pay."""
        return do(name)

    @contextos.write(risk="reversible", idempotency="none", destinations=[])
    def pay_once(name: str) -> bool:
        """Pay."""
        return do(name)

    def do(name: str) -> bool:
        if down[0]:
            raise Unavailable("bank", "down")
        made.append(name)
        return True

    pay = pay_keyed if strategy == "keyed" else pay_once
    name = pay.__name__
    pack = contextos.pack(
        "ci",
        tools=[contextos.toolset("ci", [pay])],
        version="1.0.0",
        tenant=TENANT,
        who=["deployer"],
        business_hours=closing_soon(clock),
        deny=[{"tools": [name], "when": "not clock.office.open", "because": "closed"}],
        auto_approve=[{"tools": [name], "bounds": {"name": {"enum": ["web"]}}}],
    )
    with in_memory(packs=[pack], directory=people(), clock=clock) as app:
        gate = app.gate(session="s", user="ana", token="tok_ana", agent="agt_deploy")
        if strategy == "none":
            app.call(open_circuit, app, (TENANT, "ci", name), clock)
        assert isinstance(gate.call(f"ci.{name}", {"name": "web"}, call_id="1"), Waiting)
        yield app, gate, clock, made, down


async def open_circuit(app: Any, tool: tuple[str, str, str], clock: MovableClock) -> None:
    breakers = getattr(app.deployment, "_target", app.deployment).breakers
    for _ in range(30):
        circuit, admits, _ = breakers.admit(tool, clock.now_us())
        if admits:
            breakers.report(tool, circuit.changes, clock.now_us(), answer=False)


@pytest.mark.parametrize("strategy", ["keyed", "none"])
@pytest.mark.parametrize(("later_s", "happens"), [(100, True), (10_000, False)])
def test_a_call_that_was_never_sent_is_judged_anew_before_it_is_sent(
    strategy: str, later_s: int, happens: bool
) -> None:
    with paying(strategy) as (app, gate, clock, made, down):
        clock.advance(later_s)
        down[0] = False
        app.drive_due_runs()
        tool = "ci.pay_keyed" if strategy == "keyed" else "ci.pay_once"
        answer = gate.call(tool, {"name": "web"}, call_id="1")
        assert made == (["web"] if happens else []), answer
        assert isinstance(answer, Done if happens else Refused), answer
        if isinstance(answer, Refused):
            assert (answer.reasons[0].code, "R_CI" in answer.reasons[0].detail) == ("policy_denied", True), answer
        gate.finish("approved" if happens else "denied")
        assert app.call(replay, app.deployment, TENANT, gate.run_id).compared
