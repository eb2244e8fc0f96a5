"""A header's parts are the hashed text, whatever its fields hold, and no two streams share a beginning."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.journal import Draft, genesis, header_hash, link, open_header

TEXT = st.text(max_size=8)


@given(TEXT, TEXT, TEXT, TEXT, st.integers(0, 2**53), st.integers(1, 2**53))
def test_the_parts_of_a_header_around_its_gaps_hash_to_the_entry(
    tenant: str, run: str, key: str, by: str, at_us: int, seq: int
) -> None:
    draft = Draft("run.context", key, at_us, by, b"{}", bytes(16))
    entry = link(tenant, run, seq, genesis(tenant, run), draft)
    before, between, after = open_header(tenant, run, entry.body_digest, draft)
    spelled = f"{before}{entry.prev_hash}{between}{seq}{after}"
    assert "sha256:" + hashlib.sha256(spelled.encode()).hexdigest() == entry.hash == header_hash(entry)


@given(TEXT, TEXT, TEXT, TEXT)
def test_two_streams_begin_alike_only_if_they_are_the_same(tenant: str, run: str, other: str, its_run: str) -> None:
    assert (genesis(tenant, run) == genesis(other, its_run)) == ((tenant, run) == (other, its_run))
