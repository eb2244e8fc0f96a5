"""A group of batches becomes calls of one tenant each, with locks that are the same in every process."""

from __future__ import annotations

import asyncio

from contextos.contracts.journal import INDEX, Batch, Draft, Write
from contextos.store.postgres.commit_calls import Job, arguments, batch_bytes, lock_keys, split_into_calls

DRAFT = Draft("run.indexed", "run_a", 1, "runtime", b"{}", b"0" * 16)


def job(tenant: str, batch: Batch) -> Job:
    async def made() -> Job:
        return Job(tenant, batch, batch_bytes(batch), asyncio.get_running_loop().create_future())

    return asyncio.run(made())


def test_a_call_has_one_tenant_and_each_run_once_and_keeps_the_order() -> None:
    one, two, again, other = (job("t", Batch("a")), job("t", Batch("b")), job("t", Batch("a")), job("u", Batch("a")))
    assert split_into_calls([one, other, two, again]) == [[one, two], [other], [again]]


def test_locks_are_sorted_and_a_write_excludes_the_shared_lock_of_a_check() -> None:
    check = job("t", Batch("a", writes=(Write("keys", "k", 1, None),)))
    write = job("t", Batch("b", writes=(Write("keys", "k", 1, b"1"),)))
    checked, both = lock_keys([check]), lock_keys([check, write])
    assert both == sorted(both) == lock_keys([write, check])
    [shared] = [key for key in checked if key % 2 == 0]
    assert shared not in both
    assert shared + 1 in both


def test_tenants_do_not_lock_each_other() -> None:
    batch = Batch("a", writes=(Write("keys", "k", 0, b"1"),))
    assert not set(lock_keys([job("t", batch)])) & set(lock_keys([job("u", batch)]))


def test_only_the_first_line_of_the_index_gives_a_run_its_number() -> None:
    indexed = job("t", Batch("run_a", shared=((INDEX, DRAFT),)))
    silent = job("t", Batch("run_b", writes=(Write("keys", "k", 0, b"12"),)))
    runs, drafts = arguments([indexed, silent], None, "1s", [1])[6], arguments([indexed, silent], None, "1s", [1])[8]
    assert [row[0] for row in runs] == ["run_a"]
    assert drafts[0][-1] is True
    assert (indexed.size, silent.size) == (2, 2)
