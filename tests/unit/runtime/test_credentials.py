"""A whole run whose tools are called with exchanged credentials: reads at the same time, an approval whose evidence is
read again, a payment; and issuers of a program's own, which are checked like any other.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.breaker import CircuitBreakers
from contextos.action.gateway.dispatcher import Dispatcher
from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.documents.operations import APPROVALS, OPERATIONS
from contextos.contracts.documents.runs import REQUESTS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.ports.credentials import Credential, CredentialRequest
from contextos.contracts.trace import parse_traceparent
from contextos.errors import InvalidInput, LostReply, Problem, Unavailable
from contextos.runtime.credentials import EXCHANGE_TTL_S
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from tests.e2e.test_parallel_reads import GROUP, reading_more
from tests.world import TENANT, TestWorld, open_world, request, run

ENDPOINT = "api.shop.example:443"
CHECKED = "recheck/"


class Issuer:
    """A `Credentials` port in the process. `change` is what a test makes of each credential."""

    issuer = "https://issuer.example"

    def __init__(self, clock: Any, change: Callable[[Credential], Any] = lambda it: it) -> None:
        self.clock, self.change = clock, change
        self.asked: list[CredentialRequest] = []
        self.at_once = self.most_at_once = 0

    async def exchange(self, request: CredentialRequest) -> Credential:
        self.asked.append(request)
        token = f"token-number-{len(self.asked):04}"
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        self.answering = request
        reference = f"jti_hash:sha256:{hashlib.sha256(token.encode()).hexdigest()}"
        until_us = self.clock.now_us() + 60_000_000
        made: Credential = self.change(Credential(token, request.scopes, until_us, reference))
        return made


class Guarded:
    """An adapter of the example that is called with an exchanged credential."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.heard: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def describe(self) -> AdapterDefinition:
        stated: dict[str, Any] = self._inner.describe().to_json()
        auth = {"mode": "exchange", "audience": "https://api.shop.example"}
        capabilities = [{**one, "auth": auth} if one.get("required_scopes") else one for one in stated["capabilities"]]
        return AdapterDefinition.model_validate(
            {**stated, "capabilities": capabilities, "external": True, "egress": [ENDPOINT]}
        )

    async def call(self, capability: str, args: Any, context: Any) -> Any:
        self.heard.append((capability, context.access_token))
        assert context.access_token not in repr(context)
        assert len(repr(context)) < 1_000, "an adapter that logs it would write everything that the run has"
        return await self._inner.call(capability, args, context)


def reaching(body: dict[str, Any]) -> None:
    reading_more(body)
    body["tooling_layer"]["egress"] = [ENDPOINT]


async def world_with(
    path: Path, change: Callable[[Credential], Any] = lambda it: it, payments: str = "keyed"
) -> tuple[TestWorld, Issuer]:
    world = await open_world(path, pack=reaching, egress={TENANT: (ENDPOINT,)}, payments=payments)
    issuer = Issuer(world.clock, change)
    for name, adapter in list(world.adapters.items()):
        if any(one.required_scopes for one in adapter.describe().capabilities):
            world.adapters[name] = Guarded(adapter)  # type: ignore[assignment]
    world.deployment.ports = replace(world.deployment.ports, credentials=issuer)
    return world, issuer


async def exchanged(world: TestWorld, run_id: str) -> dict[str, dict[str, Any]]:
    entries = await world.stores.tenant(TENANT).read(run_id)
    return {one.key: read_body(one) for one in entries if one.kind == "credential.exchanged"}


def test_every_call_of_a_run_has_a_token_of_its_own_and_a_replay_asks_nobody(tmp_path: Path) -> None:
    async def go() -> None:
        world, issuer = await world_with(tmp_path)
        view = await world.invoke(request(4200, "req_1"))
        assert view.state == "waiting", view
        assert issuer.most_at_once == len(GROUP), "reads at the same time are exchanged for at the same time"
        view = await world.approve(view.run_id)
        assert view.state == "completed", view
        heard = [one for adapter in world.adapters.values() for one in getattr(adapter, "heard", [])]
        tokens = [token for _, token in heard]
        assert len(set(tokens)) == len(tokens) == len(issuer.asked)
        parents = [parse_traceparent(one.trace["traceparent"]) for one in issuer.asked]
        assert {one and one.trace_id for one in parents} == {request(4200, "req_1")["trace"]["trace_id"]}
        assert all(one.trace.keys() == {"traceparent", "tracestate"} for one in issuer.asked), "an issuer is outside"
        recorded = await exchanged(world, view.run_id)
        assert len(recorded) == len(tokens)
        again = [key for key in recorded if key.startswith(CHECKED)]
        assert again, "the evidence was read again before the approval was used, with a token of its own"
        assert {one["credential"]["subject"] for one in recorded.values()} == {"usr_771"}
        assert ("issue_refund", tokens[-1]) in heard
        result = await replay(world.deployment, TENANT, view.run_id)
        assert result.compared == len(await world.stores.tenant(TENANT).read(view.run_id))
        assert len(issuer.asked) == len(tokens)
        await world.aclose()

    run(go())


@pytest.mark.parametrize("gone", ["refused", "unavailable"])
def test_evidence_that_cannot_be_read_again_pays_nothing(tmp_path: Path, gone: str) -> None:
    async def go() -> None:
        world, issuer = await world_with(tmp_path)
        view = await world.invoke(request(4200, "req_1"))
        await world.answer(view.run_id)

        def fails(_: Credential) -> Credential:
            if gone == "refused":
                raise InvalidInput(Problem("", "invalid_target", "nobody knows the audience", "correct it"))
            raise Unavailable("issuer", "it is gone")

        issuer.change = fails
        if gone == "unavailable":
            with pytest.raises(Unavailable):
                await world.deployment.advance(TENANT, view.run_id)
            issuer.change = lambda it: it
        await world.deployment.advance(TENANT, view.run_id)
        after = await world.deployment.view(TENANT, view.run_id)
        assert (after.state, len(world.refunds())) == (
            ("completed", 1) if gone == "unavailable" else ("escalated", 0)
        ), after
        await world.aclose()

    run(go())


@pytest.mark.parametrize("number", range(1, len(GROUP) + 1))
def test_of_a_group_only_the_reads_before_the_refused_one_are_dispatched(tmp_path: Path, number: int) -> None:
    def refuses(it: Credential) -> Credential:
        if it.token.endswith(f"{number:04}"):
            raise InvalidInput(Problem("", "invalid_target", "nobody knows the audience", "correct it"))
        return it

    async def go() -> None:
        world, issuer = await world_with(tmp_path, refuses)
        view = await world.invoke(request(4200, "req_1"))
        assert view.state == "refused", view
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        heard = [one for adapter in world.adapters.values() for one in getattr(adapter, "heard", [])]
        assert len(heard) == sum(one.kind == "tool.dispatching" for one in entries) < len(issuer.asked)
        assert [read_body(one)["envelope"]["error"]["code"] for one in entries if one.kind == "tool.refused"] == [
            "identity_refused"
        ]
        result = await replay(world.deployment, TENANT, view.run_id)
        assert result.compared == len(entries)
        await world.aclose()

    run(go())


def _later(it: Credential) -> Credential:
    return replace(it, expires_at_us=it.expires_at_us + 4_000_000_000)


WRONG: dict[str, Callable[[Credential], Any]] = {
    "more scopes": lambda it: replace(it, scopes=(*it.scopes, "admin")),
    "fewer scopes": lambda it: replace(it, scopes=()),
    "a longer life": _later,
    "no life": lambda it: replace(it, expires_at_us=0),
    "a short token": lambda it: replace(it, token="abc"),
    "the token as its reference": lambda it: replace(it, reference=it.token),
    "something else": lambda it: {"access_token": it.token},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_any_issuer_gives_is_checked_before_it_is_used_or_recorded(tmp_path: Path, wrong: str) -> None:
    async def go() -> None:
        world, _ = await world_with(tmp_path, WRONG[wrong])
        view = await world.invoke(request(900, "req_1"))
        assert view.state != "completed"
        assert world.refunds() == []
        assert all(adapter.heard == [] for adapter in world.adapters.values() if isinstance(adapter, Guarded))
        recorded = await exchanged(world, view.run_id)
        assert {one["failure"]["code"] for one in recorded.values()} == {"identity_refused"}
        assert "token-number" not in str(recorded)
        await world.aclose()

    run(go())


def test_who_was_changed_since_the_run_began_gets_no_token_for_another_attempt(tmp_path: Path) -> None:
    """Of a read in a plan nobody looks again before its next attempt, except the exchange."""

    async def go() -> None:
        world, issuer = await world_with(tmp_path)
        orders: Any = world.adapters["adp_orders"]

        async def gone(*_: Any) -> Any:
            def change(tenant: dict[str, Any]) -> None:
                next(one for one in tenant["users"] if one["user_id"] == "usr_771")["scopes"].append("more")

            world.edit_directory(change)
            raise Unavailable("orders", "it is gone")

        orders._inner.call = gone
        view = await world.invoke(request(900, "req_1"))
        recorded = await exchanged(world, view.run_id)
        assert len(issuer.asked) == len(GROUP), "once for each read, and never again"
        failures = [one["failure"]["detail"] for one in recorded.values() if "failure" in one]
        assert failures
        assert all("the user or the agent changed" in one for one in failures)
        await world.aclose()

    run(go())


def test_a_text_of_an_issuer_holds_no_token_of_the_runtime(tmp_path: Path) -> None:
    async def go() -> None:
        world, issuer = await world_with(tmp_path)

        def tells(_: Credential) -> Credential:
            said = f"{issuer.answering.subject_token} and {issuer.answering.actor_token}"
            raise InvalidInput(Problem("", "invalid_request", said, "read it"))

        issuer.change = tells
        view = await world.invoke(request(900, "req_1"))
        recorded = await exchanged(world, view.run_id)
        assert recorded
        assert "eyJ" not in str(recorded)
        await world.aclose()

    run(go())


def test_without_a_port_nothing_is_sent(tmp_path: Path) -> None:
    async def go() -> None:
        world, _ = await world_with(tmp_path)
        world.deployment.ports = replace(world.deployment.ports, credentials=None)
        view = await world.invoke(request(900, "req_1"))
        assert world.refunds() == []
        assert "`[credentials]`" in str(await exchanged(world, view.run_id))
        await world.aclose()

    run(go())


def test_a_run_without_exchanges_records_none(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(900, "req_1"))
        assert view.state == "completed"
        assert "credential.exchanged" not in await world.kinds(view.run_id)
        await world.aclose()

    run(go())


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("payments", ["none", "lookup"])
def test_what_another_process_can_still_send_is_asked_of_nobody_before_its_time_is_over(
    payments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        world, _ = await world_with(tmp_path, payments=payments)
        send = Dispatcher._send

        async def killed(self: Dispatcher, delivery: Any) -> dict[str, Any]:
            if delivery.writes:
                raise Killed
            return await send(self, delivery)

        with monkeypatch.context() as patched:
            patched.setattr(Dispatcher, "_send", killed)
            with pytest.raises(Killed):
                await world.invoke(request(900, "req_1"))
        claim = await REQUESTS.one(world.stores.tenant(TENANT), "req_1")
        assert claim is not None
        run_id = claim.body.run_id
        entries = await world.stores.tenant(TENANT).read(run_id)
        until_us = [read_body(one)["not_after_us"] for one in entries if one.kind == "tool.dispatching"][-1]
        for _ in range(60):
            await world.deployment.advance(TENANT, run_id)
            view = await world.deployment.view(TENANT, run_id)
            if view.ended or view.state == "waiting":
                break
            world.clock.at_us += 1_000_000
        # A person is asked, or the look-up counts, only when the other process cannot send any more.
        assert world.clock.at_us > until_us
        assert (view.state, view.ended) == (("waiting", False) if payments == "none" else ("escalated", True))
        assert world.refunds() == []
        await world.aclose()

    run(go())


def test_an_outage_of_the_issuer_uses_no_approval_up(tmp_path: Path) -> None:
    async def go() -> None:
        world, issuer = await world_with(tmp_path, payments="none")
        asked = await world.invoke(request(4200, "req_1"))
        issuer.change = _is_down
        with pytest.raises(Unavailable):
            await world.approve(asked.run_id)
        assert world.refunds() == []
        issuer.change = lambda it: it
        await world.deployment.advance(TENANT, asked.run_id)
        view = await world.deployment.view(TENANT, asked.run_id)
        assert view.state == "completed", (view.record or {})["rationale"]["failures"]
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        await world.aclose()

    run(go())


def _is_down(credential: Credential) -> Credential:
    if "payments.refund" in credential.scopes:
        raise Unavailable("issuer", "it restarts")
    return credential


def _raises(error: Exception) -> Callable[[Credential], Any]:
    def change(_credential: Credential) -> Any:
        raise error

    return change


@pytest.mark.parametrize(
    "change",
    [
        _raises(ValueError("planted")),
        _raises(LostReply("planted")),
        lambda it: replace(it, expires_at_us="soon"),
        lambda it: replace(it, scopes=None),
    ],
    ids=["ValueError", "LostReply", "an end that is not a number", "no scopes"],
)
def test_whatever_an_issuer_of_anybodys_does_the_call_ends_typed(change: Any, tmp_path: Path) -> None:
    async def go() -> None:
        world, _ = await world_with(tmp_path, change)
        view = await world.invoke(request(900, "req_1"))
        assert view.ended
        assert world.refunds() == []
        await world.aclose()

    run(go())


REFUSAL = InvalidInput(Problem("", "invalid_target", "nobody knows the audience", "correct it"))


def _refuses(scope: str) -> Callable[[Credential], Any]:
    def change(credential: Credential) -> Any:
        if scope in credential.scopes:
            raise REFUSAL
        return credential

    return change


async def body_of(world: TestWorld, run_id: str, kind: str) -> list[dict[str, Any]]:
    entries = await world.stores.tenant(TENANT).read(run_id)
    return [read_body(one) or {} for one in entries if one.kind == kind]


@pytest.mark.requirement("A-CREDENTIAL-OWN")
@pytest.mark.parametrize("payments", ["keyed", "lookup", "none"])
def test_a_refusal_of_the_issuer_dispatches_nothing_and_uses_no_approval_up(payments: str, tmp_path: Path) -> None:
    async def go() -> None:
        world, issuer = await world_with(tmp_path, payments=payments)
        asked = await world.invoke(request(4200, "req_1"))
        issuer.change = _refuses("payments.refund")
        view = await world.approve(asked.run_id)
        assert view.ended
        assert world.refunds() == []
        assert [one["code"] for one in view.record["rationale"]["failures"]] == ["identity_refused"]
        dispatched = await body_of(world, view.run_id, "tool.dispatching")
        assert not [one for one in dispatched if one["envelope"]["capability_id"] == "adp_payments.issue_refund"]
        [refused] = await body_of(world, view.run_id, "tool.refused")
        assert refused["envelope"]["status"] == "blocked"
        assert {one.body.state for one in await APPROVALS.page(world.stores.tenant(TENANT))} == {"approved"}
        assert await OPERATIONS.page(world.stores.tenant(TENANT)) == []
        assert (await replay(world.deployment, TENANT, view.run_id)).compared
        await world.aclose()

    run(go())


def test_a_write_whose_issuer_was_away_and_then_refuses_ends_and_releases_its_key(tmp_path: Path) -> None:
    async def go() -> None:
        world, issuer = await world_with(tmp_path, _is_down)
        waiting = await world.invoke(request(900, "req_1"))
        assert not waiting.ended
        issuer.change = _refuses("payments.refund")
        world.clock.at_us += 400_000_000
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.ended
        assert [one["code"] for one in view.record["rationale"]["failures"]] == ["identity_refused"]
        assert [one.body.state for one in await OPERATIONS.page(world.stores.tenant(TENANT))] == ["released"]
        assert len(await body_of(world, view.run_id, "tool.refused")) == 1
        assert (await replay(world.deployment, TENANT, view.run_id)).compared
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        issuer.change = lambda it: it
        again = await world.invoke(request(900, "req_2"))
        assert (again.state, len(world.refunds())) == ("completed", 1)
        await world.aclose()

    run(go())


def _away(*_: Any) -> Any:
    raise Unavailable("adp", "it is away")


@pytest.mark.parametrize("name", ["adp_orders", "adp_payments"])
def test_while_a_circuit_is_open_nobody_is_asked_for_a_token(name: str, tmp_path: Path) -> None:
    async def go() -> None:
        world, issuer = await world_with(tmp_path)
        world.deployment.breakers = CircuitBreakers(AdmissionLimits(breaker_failures_in_a_row=1))
        outer: Any = world.adapters[name]
        inner, outer._inner = outer._inner, SimpleNamespace(describe=outer._inner.describe, call=_away)
        scope = {"adp_orders": "orders.read", "adp_payments": "payments.refund"}[name]

        def asked() -> int:
            return len([one for one in issuer.asked if scope in one.scopes])

        first = await world.invoke(request(900, "req_1"))
        before = asked()
        assert before == len(outer.heard) > 0
        second = await world.invoke(request(901, "req_2"))
        assert asked() == before, "nothing could be sent with it"
        [*_, returned] = await body_of(world, second.run_id, "tool.returned")
        error = returned["envelope"]["error"]
        assert (returned["outcome"], error["code"], error["retryable"]) == ("not_sent", "circuit_open", True)
        assert returned["retry_at_us"] > world.clock.at_us
        outer._inner = inner
        for _ in range(5):
            world.clock.at_us += 400_000_000
            for one in (first, second):
                await world.deployment.advance(TENANT, one.run_id)
        ends = [await world.deployment.view(TENANT, one.run_id) for one in (first, second)]
        assert all(view.ended for view in ends)
        assert len(world.refunds()) == (2 if name == "adp_payments" else 0)
        for view in ends:
            assert (await replay(world.deployment, TENANT, view.run_id)).compared
        await world.aclose()

    run(go())


def test_an_uncertain_payment_waits_for_its_circuit_without_a_token(tmp_path: Path) -> None:
    """The reply was lost and the circuit opened. A new token is asked for when the payment can be asked about."""

    async def go() -> None:
        world, issuer = await world_with(tmp_path)
        cool_down = AdmissionLimits(breaker_failures_in_a_row=1, breaker_cool_down_ms=3_600_000)
        world.deployment.breakers = CircuitBreakers(cool_down)
        outer: Any = world.adapters["adp_payments"]
        inner, loses = outer._inner, [True]

        async def called(*args: Any) -> Any:
            reply = await inner.call(*args)
            if loses:
                raise LostReply("the line was cut")
            return reply

        outer._inner = SimpleNamespace(describe=inner.describe, call=called)
        waiting = await world.invoke(request(900, "req_1"))
        loses.clear()

        def asked() -> int:
            return len([one for one in issuer.asked if "payments.refund" in one.scopes])

        for _ in range(3):
            world.clock.at_us += 400_000_000
            await world.deployment.advance(TENANT, waiting.run_id)
        assert (asked(), len(outer.heard)) == (1, 1)
        world.clock.at_us += 3_600_000_000
        for _ in range(3):
            world.clock.at_us += 400_000_000
            await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert (view.state, len(world.refunds()), asked()) == ("completed", 1, 2)
        assert (await replay(world.deployment, TENANT, view.run_id)).compared
        await world.aclose()

    run(go())


class Impatient(AsyncioConcurrency):
    """Waits a thousandth of the time, and keeps the limits that it was given for `exchange`."""

    def __init__(self) -> None:
        self.limits_ms: list[int] = []

    async def within(self, timeout_ms: int, call: Any) -> Any:
        if getattr(getattr(call, "func", None), "__name__", "") != "exchange":
            return await super().within(timeout_ms, call)
        self.limits_ms.append(timeout_ms)
        return await super().within(max(1, timeout_ms // 1_000), call)


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_issuer_that_never_answers_is_waited_for_as_long_as_the_call_has(stubborn: bool, tmp_path: Path) -> None:
    async def go() -> None:
        world, issuer = await world_with(tmp_path)
        impatient, released = Impatient(), asyncio.Event()
        world.deployment.ports = replace(world.deployment.ports, concurrency=impatient)

        async def hang(_: CredentialRequest) -> Credential:
            while not released.is_set():
                with suppress(asyncio.CancelledError) if stubborn else nullcontext():
                    await released.wait()
            raise AssertionError("nobody waits any more")

        hang.__name__ = "exchange"
        issuer.exchange = hang  # type: ignore[method-assign]
        view = await world.invoke(request(900, "req_1"))
        released.set()
        assert view.ended
        assert {one["code"] for one in view.record["rationale"]["failures"]} == {"tool_failed"}
        assert all(adapter.heard == [] for adapter in world.adapters.values() if isinstance(adapter, Guarded))
        recorded = await exchanged(world, view.run_id)
        assert all(
            "no credential was issued, so nothing was sent" in one["failure"]["detail"] for one in recorded.values()
        )
        declared = {one.timeout_s * 1_000 for it in world.adapters.values() for one in it.describe().capabilities}
        assert impatient.limits_ms
        assert max(impatient.limits_ms) <= max(declared) < EXCHANGE_TTL_S * 1_000
        assert (await replay(world.deployment, TENANT, view.run_id)).compared
        await world.aclose()

    run(go())
