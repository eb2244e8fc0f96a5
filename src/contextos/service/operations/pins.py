"""Pins: the packs that requests of a tenant may use, by intents and environment. Each change is a signed act."""

from __future__ import annotations

from typing import Final

from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.codec import parse
from contextos.contracts.model import Count, Model, Name, NonEmpty
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.acts.governance import withdraw_pin
from contextos.service.operations.operation import Asked, Operation, Paged, page_of
from contextos.service.operations.packs import PACK_READERS, ActiveVersion, active_version
from contextos.trust.approvals.acts import POLICY_ADMIN_ROLE


class PinPage(Model):
    """A page of the pins of a tenant. `version` is the version of the active set; no new run uses `withdrawn` refs."""

    version: int
    items: list[PackPin]
    withdrawn: list[str]
    cursor: str | None


class PinDraft(Model):
    """A pin: requests with exactly these refs, for these intents, in this environment (by default the only one that the
    deployment serves). `expected` is the `version` of the active set that the actor saw.
    """

    refs: NonEmpty[Name]
    intents: NonEmpty[Name]
    environment: Name | None = None
    expected: Count


async def list_pins(asked: Asked, page: Paged) -> PinPage:
    """List the pins. A tenant without pins accepts no request."""
    active = await asked.app.artifacts.active(asked.tenant_id)
    items, next_cursor = page_of(active.packs, (asked.tenant_id, "pins", active.version), page.limit, page.cursor)
    return PinPage(version=active.version, items=list(items), withdrawn=sorted(active.withdrawn), cursor=next_cursor)


async def set_pin(asked: Asked, draft: PinDraft) -> ActProposal[ActiveVersion]:
    """Allow requests that name exactly these refs, for these intents."""
    configuration, pin = asked.app.configuration, _pin_of(asked, draft)
    proposal = await configuration.propose_pin(asked.tenant_id, pin, expected=draft.expected, by=asked.by)
    return proposal.then(lambda _: active_version(asked, draft.expected + 1))


async def end_pin(asked: Asked, draft: PinDraft) -> ActProposal[ActiveVersion]:
    """End a pin. Approvals that wait under a pack without any pin become void."""
    deployment, pin = asked.app.deployment, _pin_of(asked, draft)
    proposal = await withdraw_pin.propose(deployment, asked.tenant_id, pin, expected=draft.expected, by=asked.by)
    return proposal.then(lambda _: active_version(asked, draft.expected + 1))


def _pin_of(asked: Asked, draft: PinDraft) -> PackPin:
    environment = draft.environment or asked.app.deployment.config.environment
    pin = {"refs": sorted(set(draft.refs)), "intents": sorted(set(draft.intents)), "environment": environment}
    return parse(PackPin, pin)


_ADMINS: Final = (POLICY_ADMIN_ROLE,)
PIN_OPERATIONS: Final = (
    Operation("pins.list", ("GET", "/pins"), PACK_READERS, Paged, PinPage, list_pins),
    Operation("pins.set", ("POST", "/pins"), _ADMINS, PinDraft, ActiveVersion, set_pin, signs="pin packs", status=201),
    Operation(
        "pins.withdraw", ("POST", "/pins/withdraw"), _ADMINS, PinDraft, ActiveVersion, end_pin, signs="end a pin"
    ),
)
