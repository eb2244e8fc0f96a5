"""Requests are counted for their caller, and for their tenant."""

from __future__ import annotations

import pytest

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.errors import Overloaded
from contextos.server.rates import Places, RequestRates
from contextos.trust.identity.callers import Caller


class StandingClock:
    at_us = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self.at_us


def caller(subject: str, tenant: str = "tenant_a") -> Caller:
    return Caller("user", tenant, subject, "dev", None, (), (), 2**40, "sha256:" + "0" * 64)


def rates(*, per_caller: int = 2, per_tenant: int = 3) -> tuple[RequestRates, StandingClock]:
    limits = AdmissionLimits(
        max_http_requests_per_minute_per_caller=per_caller, max_http_requests_per_minute_per_tenant=per_tenant
    )
    clock = StandingClock()
    return RequestRates(limits, clock), clock


def test_a_caller_has_their_own_requests_and_the_tenant_all_of_them() -> None:
    made, _ = rates()
    made.count(caller("ana"))
    made.count(caller("ana"))
    with pytest.raises(Overloaded, match="you sent 2 requests"):
        made.count(caller("ana"))
    made.count(caller("ben"))
    with pytest.raises(Overloaded, match="this tenant sent 3 requests"):
        made.count(caller("eve"))
    made.count(caller("ana", "tenant_b"))


def test_what_a_caller_is_refused_is_not_taken_from_their_tenant() -> None:
    made, _ = rates(per_caller=1, per_tenant=2)
    made.count(caller("ana"))
    for _ in range(50):
        with pytest.raises(Overloaded):
            made.count(caller("ana"))
    made.count(caller("ben"))


def test_the_refusal_says_when_there_is_room_again() -> None:
    made, clock = rates(per_caller=2)
    made.count(caller("ana"))
    made.count(caller("ana"))
    with pytest.raises(Overloaded) as refused:
        made.count(caller("ana"))
    assert refused.value.retry_after_ms == 30_000
    clock.at_us += refused.value.retry_after_ms * 1_000
    made.count(caller("ana"))


def test_a_clock_that_is_put_back_refuses_nobody() -> None:
    made, clock = rates(per_caller=2, per_tenant=4)
    made.count(caller("ana"))
    clock.at_us -= 3_600_000_000
    made.count(caller("ana"))
    made.count(caller("ben"))
    with pytest.raises(Overloaded, match="you sent 2 requests"):
        made.count(caller("ana"))


def test_a_tenant_has_its_places_and_the_server_all_of_them() -> None:
    places = Places("lists", 3, 2)
    places.take("a")
    places.take("a")
    with pytest.raises(Overloaded, match="enough lists"):
        places.take("a")
    places.take("b")
    with pytest.raises(Overloaded):
        places.take("c")
    places.free("a")
    places.take("c")


def test_a_place_is_given_back_after_an_error_too() -> None:
    places = Places("lists", 1, 1)
    for _ in range(3):
        with pytest.raises(ValueError, match="no"), places.place("a"):
            raise ValueError("no")
    with places.place("a"), pytest.raises(Overloaded):
        places.take("a")
