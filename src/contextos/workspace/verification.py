"""Verifies the stored streams of a tenant, and compares them with the heads at the witness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from contextos.audit.checkpoint import Checkpoint
from contextos.audit.library import verify_library
from contextos.audit.verify import Verification, VerifiedStream, verify_facts
from contextos.contracts.journal import CONTROL, WitnessedHead
from contextos.deployment.witness import Restoration, restorations, witness_place, witnessed_lengths
from contextos.errors import Integrity, NotFound
from contextos.trust.pages import stream_pages
from contextos.workspace.application import App
from contextos.workspace.given import witness_at
from contextos.workspace.settings import has_default_witness


class Compared(NamedTuple):
    """The witness with which a tenant's own streams were compared, and how far each stream was witnessed.

    `witness` is the name of the witness, or None: then nobody can prove that `index` and `control` were not cut.
    `earlier` are other witnesses that `control` names, and `past` is what restores from a backup left.
    """

    witness: str | None
    lengths: dict[str, int]
    earlier: tuple[str, ...]
    past: list[Restoration]


async def verify_stored(
    app: App,
    tenant_id: str,
    verification: Verification,
    each: Callable[[VerifiedStream], object],
    *,
    whole: bool,
    since: Checkpoint | None = None,
    witness: str = "",
) -> Compared | None:
    """Verify a tenant's streams, and call `each` with every verified stream. Return the comparison with the witness.

    `whole` says that the verification has no last run: then the streams that belong to no run are verified too. Without
    it, None is returned. `witness` is the place of a copy of the witness, used instead of the witness of the settings.
    The verification goes on from the checkpoint `since`.

    Raises:
        Integrity: something does not verify (names the first fault), or the witness has no head of the tenant.
        InvalidInput: as `Verification.streams`.
        NotFound: nothing is stored of the tenant.
        Unavailable: the store or the witness does not answer.
    """
    store, keys = app.stores.tenant(tenant_id), app.keys
    # The witnessed heads are read first: the streams can grow in between and must not shrink.
    compared, heads = await _compare_with_witness(app, tenant_id, witness, since) if whole else (None, ())
    is_empty = True
    async for stream in verification.streams(heads):
        each(stream)
        is_empty = is_empty and not stream.entries
    if is_empty:
        raise NotFound(f"nothing is stored of `{tenant_id[:64]}`, so nothing verifies; check the tenant's name")
    if compared is not None:
        await verify_facts(app.stores.graph(tenant_id), store, keys)
        await verify_library(app.stores.artifacts(tenant_id), store, keys)
        if compared.witness and not compared.lengths and (witness or not has_default_witness(app.settings)):
            detail = f"the witness knows nothing of `{tenant_id}`, which has entries; it was emptied, or is another"
            raise Integrity(f"{detail}: name the right one with `--witness`")
    return compared


async def _compare_with_witness(
    app: App, tenant_id: str, witness: str, since: Checkpoint | None
) -> tuple[Compared, Sequence[WitnessedHead]]:
    """Return the comparison with the witness, and its heads. Heads from before the checkpoint `since` are not read."""
    publisher = app.witness_publisher
    place = witness_place(witness) if witness else publisher.place if publisher else None
    since_us = since.begun_at_us if since else 0
    heads: Sequence[WitnessedHead] = ()
    if witness:
        heads = await witness_at(witness, Path()).heads(tenant_id, since_us=since_us)
    elif publisher:
        heads = await publisher.witnessed_heads(tenant_id, since_us=since_us)
    known_places = {place, publisher.place if publisher else None}
    earlier = [
        line.key
        async for page in stream_pages(app.stores.tenant(tenant_id), CONTROL)
        for line in page
        if line.kind == "witness.begun" and line.key not in known_places
    ]
    return Compared(place, witnessed_lengths(heads), tuple(earlier), restorations(heads, whole=not since)), heads
