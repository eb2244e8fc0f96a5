"""Two runs are compared by what their journals say, in the order in which they first say something else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contextos.contracts.encoding.pointer import MISSING
from contextos.contracts.journal import Entry
from contextos.deployment.queries.comparison import _PART_OF, _READERS, COMPARED_PARTS, ERASED_BODY, compare_entries
from tests.http_face import TENANT, HttpFace, http_face

Journal = list[Entry]


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("comparison")) as made:
        yield made


@pytest.fixture(scope="module")
def small(face: HttpFace) -> Journal:
    return journal(face, face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])


@pytest.fixture(scope="module")
def waits(face: HttpFace) -> Journal:
    return journal(face, face.waiting_run())


def journal(face: HttpFace, run: str) -> Journal:
    return list(face.call(face.app.runs.entries(face.call(face.app.runs.get(TENANT, run)))))


def test_every_kind_that_is_compared_has_a_part() -> None:
    assert _READERS.keys() == _PART_OF.keys()
    assert set(_PART_OF.values()) == set(COMPARED_PARTS)


def test_a_run_equals_itself(small: Journal, waits: Journal) -> None:
    assert compare_entries(small, small) == compare_entries(waits, waits) == ([], False)


def test_the_first_difference_is_on_top_and_names_what_each_run_says(small: Journal, waits: Journal) -> None:
    found, has_more = compare_entries(small, waits)
    first = found[0]
    assert (first.part, first.place, first.value, first.other) == (
        "request",
        "/input/context/order_id",
        "ord_881",
        "ord_895",
    )
    assert (first.seq, first.other_seq, has_more) == (1, 1, False)
    seqs = [min(seq for seq in (one.seq, one.other_seq) if seq is not None) for one in found]
    assert seqs == sorted(seqs)
    assert {one.part for one in found} >= {"request", "envelope", "decisions", "arguments", "evidence", "outcome"}
    [gates] = [one for one in found if one.place.endswith("/gates")]
    assert (gates.name, gates.value, gates.other) == (
        "adp_payments.issue_refund at execute/0/s3",
        MISSING,
        ["GATE_FINANCE_APPROVAL"],
    )


def test_what_only_one_run_has_is_missing_in_the_other(small: Journal) -> None:
    before_the_first_call = [entry for entry in small if entry.seq < 14]
    for found, _ in (compare_entries(small, before_the_first_call), compare_entries(before_the_first_call, small)):
        missing = [one for one in found if MISSING in (one.value, one.other)]
        assert missing == list(found)
        assert all((one.value is MISSING) is (one.seq is None) for one in found)


def test_an_erased_body_is_compared_as_erased(small: Journal) -> None:
    erased = [entry._replace(body=None) if entry.kind == "tool.dispatching" else entry for entry in small]
    found, _ = compare_entries(small, erased)
    assert ERASED_BODY in [one.other for one in found]
    assert {one.part for one in found} == {"arguments"}
