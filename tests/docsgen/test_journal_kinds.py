"""Every journal kind is written somewhere and read somewhere."""

from __future__ import annotations

from docsgen.journal_kinds import KindUse, kind_uses, kinds_table


def test_every_kind_is_written_and_read() -> None:
    rows = {row[0].strip("`"): row for row in kinds_table()}
    assert [kind for kind, row in rows.items() if row[4] == "none"] == []
    assert [kind for kind, row in rows.items() if row[5] == "none"] == []


def test_a_kind_is_written_in_a_call_that_records_it_and_read_anywhere_else() -> None:
    uses = kind_uses(
        {
            "runtime/planted.py": 'async def f(journal):\n    await journal.record("run.received", "", {}, call)\n',
            "queries/planted.py": 'ENDED = [entry for entry in log if entry.kind == "run.ended"]\n',
            "memory/planted.py": 'REVIEWED = "memory.reviewed"\nline = Draft(REVIEWED, "", 0, "", b"", b"")\n',
            "contracts/planted.py": 'found = entry.kind == "run.scored"\n',
        }
    )
    assert uses["run.received"] == KindUse(("runtime.planted",), ())
    assert uses["run.ended"] == KindUse((), ("queries.planted",))
    assert uses["memory.reviewed"] == KindUse(("memory.planted",), ())
    assert uses["run.scored"] == KindUse((), ())
