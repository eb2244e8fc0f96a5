"""A batch that no store could keep is refused before a store reads its own state, with every problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.journal import Batch, Draft, Write, genesis, link
from contextos.errors import InvalidInput
from contextos.store.shared.batch import (
    MAX_BATCH_ENTRIES,
    MAX_ENTRY_BYTES,
    MAX_ENTRY_NAME_CHARS,
    MAX_NAME_BYTES,
    MAX_SQL_INTEGER,
    is_too_long,
    nothing_signed,
    refuse_misfit,
)

DRAFT = Draft("run.received", "", 1, "runtime", b"{}", b"0" * 16)
ENTRY = link("t", "run_a", 1, genesis("t", "run_a"), DRAFT)
WRITE = Write("keys", "k", 0, b"1")


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"entries": (ENTRY,) * (MAX_BATCH_ENTRIES + 1)}, "/entries", "too_many"),
        ({"entries": (ENTRY._replace(tenant="other"),)}, "/entries/0", "foreign"),
        ({"entries": (ENTRY, ENTRY._replace(run="run_b"))}, "/entries/1", "foreign"),
        ({"entries": (ENTRY._replace(salt=None),)}, "/entries/0/body", "missing"),
        ({"entries": (ENTRY._replace(key="k" * MAX_ENTRY_NAME_CHARS),)}, "/entries/0", "too_long"),
        ({"entries": (ENTRY._replace(by="a\ud800"),)}, "/entries/0", "not_storable"),
        ({"entries": (ENTRY._replace(at_us=2**63),)}, "/entries/0/at_us", "out_of_bounds"),
        ({"entries": (ENTRY._replace(at_us=-(2**63)),)}, "/entries/0/at_us", "out_of_bounds"),
        ({"entries": (ENTRY._replace(at_us=True),)}, "/entries/0", "wrong_type"),
        ({"entries": (ENTRY._replace(body=bytes(MAX_ENTRY_BYTES + 1)),)}, "/entries/0/body", "too_large"),
        ({"writes": (replace(WRITE, expect=-1),)}, "/writes/0/expect", "out_of_bounds"),
        ({"writes": (replace(WRITE, expect=MAX_SQL_INTEGER),)}, "/writes/0/expect", "out_of_bounds"),
        ({"writes": (replace(WRITE, key=""),)}, "/writes/0", "empty"),
        ({"writes": (replace(WRITE, key="ü" * MAX_NAME_BYTES),)}, "/writes/0", "too_long"),
        ({"writes": (replace(WRITE, body=bytes(MAX_ENTRY_BYTES + 1)),)}, "/writes/0/body", "too_large"),
        ({"shared": (("run_b", DRAFT),)}, "/shared/0", "unknown_stream"),
        ({"shared": (("index", DRAFT._replace(key="a\udfff")),)}, "/shared/0", "not_storable"),
        ({"writes": (replace(WRITE, key="a\ud800"),)}, "/writes/0", "not_storable"),
        ({"run": "a\ud800"}, "/run", "not_storable"),
        ({"run": "index", "entries": (ENTRY._replace(run="index"),)}, "/run", "shared"),
        ({"run": ""}, "/run", "empty"),
        ({"run": "r" * (MAX_NAME_BYTES + 1)}, "/run", "too_long"),
        ({"signature": ("k" * (MAX_NAME_BYTES + 1), "00")}, "/signature", "too_long"),
        ({"wake_at_us": -1}, "/wake_at_us", "out_of_bounds"),
        ({"wake_at_us": MAX_SQL_INTEGER + 1}, "/wake_at_us", "out_of_bounds"),
    ],
)
def test_a_misfit_is_refused_with_its_place(change: dict[str, Any], pointer: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        refuse_misfit("t", replace(Batch("run_a"), **change))
    assert (pointer, code) in [(one.pointer, one.code) for one in refused.value.problems]


def test_a_batch_at_every_limit_is_accepted() -> None:
    write = Write("c" * MAX_NAME_BYTES, "k", MAX_SQL_INTEGER - 1, None)
    refuse_misfit("t", Batch("run_a", entries=(ENTRY,), writes=(write,), wake_at_us=MAX_SQL_INTEGER))


def test_length_is_counted_in_bytes_and_a_lone_surrogate_is_no_defect() -> None:
    assert is_too_long("ü" * (MAX_NAME_BYTES // 2 + 1))
    assert not is_too_long("ü" * (MAX_NAME_BYTES // 2))
    assert not is_too_long("\ud800")
    assert nothing_signed("run_a").problems[0].pointer == "/signature"
