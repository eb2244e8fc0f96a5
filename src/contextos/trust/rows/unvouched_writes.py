"""The rows that keep what runs wrote out of untrusted content, each signed by the runtime.

Without these rows a later run would take the written content for trusted. So reading fails at a row that is altered or
made up. The run that wrote a row states the digest of its content, so `verify` finds a row that is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import UNVOUCHED_WRITES, UnvouchedWrite
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.journal import Batch, Write
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import Integrity
from contextos.trust.journal.signed_heads import head_payload, is_signed


class SignedWrites:
    """The port `WrittenContent` over one tenant's documents."""

    def __init__(self, store: Store, tenant_id: str, keys: Keys) -> None:
        self._store, self._tenant, self._keys = store, tenant_id, keys

    def keep(self, key: str, digests: tuple[str, ...] | None, at_us: int, *, expect: int = 0) -> Write:
        payload = head_payload(self._tenant, _stream_name(key), expect + 1, _digest(digests, at_us))
        kid, signature = self._keys.sign("head", payload)
        return UNVOUCHED_WRITES.write(key, expect, UnvouchedWrite(digests, at_us, kid, signature.hex()))

    async def through(self, adapter_id: str, *, limit: int) -> Sequence[StoredDocument[UnvouchedWrite]]:
        rows = await UNVOUCHED_WRITES.page(self._store, prefix=f"{adapter_id}/", limit=limit)
        for row in rows:
            if fault := self.fault(row):
                detail = f"{fault}; nothing is read: find out who wrote it, and restore the documents from a backup"
                raise Integrity(detail)
        return rows

    def fault(self, row: StoredDocument[UnvouchedWrite]) -> str | None:
        """Return why a row is not believed, or None."""
        write = row.body
        signed = (row.version, _digest(write.digests, write.at_us), write.kid, write.signature)
        if is_signed(signed, self._tenant, _stream_name(row.key), self._keys, at_us=write.at_us):
            return None
        return f"the document `{UNVOUCHED_WRITES.name}/{row.key[:160]}` is not what the runtime signed"

    async def forget(self, run_id: str, erased: str, now_us: int) -> None:
        """Remove the digests kept for the call to which an erased entry with this key belongs: the digest of a short
        value can be guessed. From then on everything that its adapter answers counts as untrusted.
        """
        async for key in UNVOUCHED_WRITES.keys(self._store):
            _, writer_run_id, call = key.split("/", 2)
            if writer_run_id == run_id and f"{erased}/".startswith(f"{call}/"):
                row = await UNVOUCHED_WRITES.one(self._store, key)
                if row is not None and row.body.digests is not None:
                    write = self.keep(key, None, now_us, expect=row.version)
                    await self._store.commit(Batch(run=run_id, writes=(write,)))


def _stream_name(key: str) -> str:
    return f"{UNVOUCHED_WRITES.name}/{key}"


def _digest(digests: Sequence[str] | None, at_us: int) -> str:
    return content_address({"digests": None if digests is None else list(digests), "at_us": at_us})
