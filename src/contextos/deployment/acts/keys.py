"""Rotate a key of the runtime: the old key signs the new one, and the act is in the control stream of every tenant.

A key belongs to the deployment and an act to a tenant, so the actor must be known in each tenant. A waiting run goes
on: what the old key signed before it was retired still counts.
Source: docs/adr/0027-a-key-for-each-purpose.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from contextos.contracts.acts import ProposedAct
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.shared import RotatedKey
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.outside import Keys
from contextos.deployment.acts.act import Actor, prove_act
from contextos.deployment.deployment import Deployment
from contextos.errors import Conflict, InvalidInput, Problem
from contextos.trust.recorded_time import behind_us

OVERLAP_US: Final = 3_600_000_000
"""One hour, in microseconds: how long signatures of the old key still count after the new key signs, and how long
before that other machines have to learn of the new key.
"""


class NewKey(NamedTuple):
    """A key before it is listed: the fields of `RotatedKey` except the signature."""

    purpose: str
    old_kid: str
    kid: str
    public_key: str
    activated_at_us: int
    retired_at_us: int


class RotatingKeys(Keys, Protocol):
    """Keys that can be replaced one at a time."""

    def prepare(self, purpose: str, from_us: int) -> NewKey:
        """Make a key that would replace the one that signs for `purpose` from `from_us` (Unix microseconds) on. Its
        private half is kept; until the key is installed it signs nothing.

        Raises `InvalidInput` for a purpose that is unknown, that these keys cannot sign for, that has its maximum of
        keys, or whose last rotation does not count yet; `InvalidSettings` if the private half cannot be written.
        """
        ...

    def install(self, new: NewKey) -> None:
        """Trust a prepared key. It signs from its time on, and then the private half of the old one is deleted.

        Raises `Conflict` if the old key was replaced in between, and `InvalidSettings` if the list cannot be written.
        """
        ...

    def discard(self, new: NewKey) -> None:
        """Delete the private half of a prepared key, unless it was installed or the list cannot be read."""
        ...


async def rotate_key(
    app: Deployment, keys: RotatingKeys, tenants: Sequence[str], purpose: str, *, by: Actor, after_us: int = 0
) -> NewKey:
    """Replace the key for `purpose` by a new one, after the act is on record in every tenant.

    The new key signs after `after_us` microseconds: until then other machines can learn of it.

    Raises:
        ApprovalRefused: as `prove_act`, in any of the tenants; nothing is changed.
        InvalidInput: there is no such purpose, its key cannot be rotated now, or the record of a tenant is ahead of the
            clock.
        InvalidSettings: a file cannot be written. If that is the list of keys, the act is on record without effect.
        Conflict: another process rotated the same key; list the keys, and rotate again if it is still needed.
    """
    for tenant_id in tenants:
        # The clock selects the key that signs, and the record dates the signature. If the clock is behind the record,
        # the old key would sign after its time.
        if over_us := await behind_us(app.ports, tenant_id):
            detail = f"the record of `{tenant_id}` is {over_us / 1e6:.0f} s ahead of the clock of this machine"
            remedy = "set the clock if it is wrong; otherwise rotate the key when the clock is there"
            raise InvalidInput(Problem("", "record_ahead", detail, remedy))
    new = keys.prepare(purpose, app.ports.clock.now_us() + after_us)
    try:
        await _record_rotation(app, keys, tenants, new, by)
        keys.install(new)
    finally:
        keys.discard(new)
    return new


async def _record_rotation(app: Deployment, keys: RotatingKeys, tenants: Sequence[str], new: NewKey, by: Actor) -> None:
    kid, signature = keys.sign(new.purpose, _payload(new._asdict()))
    if kid != new.old_kid:
        raise overtaken(new)
    proposed = ProposedAct("key.rotated", new.kid, {**new._asdict(), "signature": signature.hex()})
    controls = {tenant_id: await prove_act(app.ports, app.config, tenant_id, proposed, by) for tenant_id in tenants}
    for tenant_id, control in controls.items():
        await app.ports.stores.tenant(tenant_id).commit(Batch(run=CONTROL, shared=(control,)))


def overtaken(new: NewKey) -> Conflict:
    """Return the error of a rotation whose old key another process replaced meanwhile."""
    return Conflict(new.old_kid, "list the keys and rotate again if it is still needed")


def is_introduced(arguments: Mapping[str, Any], keys: Keys) -> bool:
    """Return whether the old key signed the new one, as the arguments of a sealed act say."""
    try:
        rotation = parse(RotatedKey, dict(arguments))
    except InvalidInput:
        return False
    fields = rotation.to_json()
    signature = fields.pop("signature")
    if not re.fullmatch(r"[0-9a-f]{128}", signature):
        return False
    return keys.verify(rotation.purpose, rotation.old_kid, _payload(fields), bytes.fromhex(signature))


def _payload(fields: Mapping[str, Any]) -> bytes:
    # No payload for another purpose begins with this line.
    return b"contextos key rotation\n" + canonical(dict(fields))
