"""A line of an export has one form, and what is read of it is what was written."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.audit.export_lines import (
    NotALine,
    entry_line,
    head_line,
    read_control,
    read_entry,
    read_export_line,
    read_head_line,
    sealed_line,
)
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Draft, Entry, genesis, link

FIRST = link("t", "run_1", 1, genesis("t", "run_1"), Draft("run.context", "", 5, "runtime", b"{}", bytes(16)))
SECOND = link("t", "run_1", 2, FIRST.hash, Draft("run.ended", "", 6, "runtime", b'{"a":1.5}', bytes(range(16))))
LINE = link("t", "control", 9, "sha256:x", Draft("run.cancelled", "run_1", 7, "ann", b'{"b":null}', bytes(16)))


def test_entries_are_read_as_they_were_linked_also_without_a_body() -> None:
    last: Entry | None = None
    for one in (FIRST, SECOND._replace(body=None, salt=None)):
        kind, fields = read_export_line(entry_line(one))
        assert kind == "entry"
        last = read_entry(fields, last=last, tenant_id="t")
        assert last == one


def test_a_head_is_that_of_the_last_entry_and_a_line_of_control_has_no_place() -> None:
    head = (2, SECOND.hash, "kid_1", "00" * 64)
    assert read_head_line(read_export_line(head_line("run_1", head))[1], last=SECOND) == head
    assert read_control(read_export_line(sealed_line(LINE))[1]) == Draft(*LINE[3:7], LINE.body, LINE.salt)
    with pytest.raises(NotALine):
        read_head_line({"run": "run_2", "kid": "k", "signature": ""}, last=SECOND)


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"[]",
        b"1",
        b"{}",
        b'{"entry":1,"head":2}',
        b'{"entry": {}}',
        b'{"other":{}}',
        b'{"head":1,"head":1}',
        b"\xff",
    ],
)
def test_anything_else_is_no_line(row: bytes) -> None:
    with pytest.raises(NotALine):
        read_export_line(row)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 2},
        {"seq": True},
        {"salt": "AA" * 16},
        {"salt": "00"},
        {"body": []},
        {"hash": "x"},
        {"v": 1},
        {"at_us": 1.5},
    ],
)
def test_an_entry_of_another_form_is_none(change: dict[str, Any]) -> None:
    _, fields = read_export_line(entry_line(FIRST))
    with pytest.raises(NotALine):
        read_entry(fields | change, last=None, tenant_id="t")
    assert canonical({"entry": fields}) == entry_line(FIRST)
