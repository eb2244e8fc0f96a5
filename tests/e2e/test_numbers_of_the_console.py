"""Every number on a page of the console equals the store, while runs go on.

A tenant has 3,000 runs. Each count, sum and list of a page is compared with one that this test reads from the journal
by itself: entry by entry, without the queries of the pages. Runs begin meanwhile, so a page lies between what the
journal had before it was asked and what it had afterwards.
"""

from __future__ import annotations

import asyncio
import html
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks import verify
from contextos.contracts.encoding.codec import loads
from contextos.contracts.entries.bodies import ACT_ARGUMENTS
from contextos.contracts.journal import INDEX, Entry
from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace, http_face

pytestmark = pytest.mark.slow

RUNS, WAITING, DECIDED = 3_000, 60, 60
AT_ONCE = 256
ROW = re.compile(r'<tr><th scope="row"><a href="/console/runs/(run_\w+)">.*?<span class="badge[^>]*>(\w+)</span>', re.S)
OLDER = re.compile(r'<a rel="next" href="/console([^"]+)"')
COUNT = re.compile(r'<span class="count">(\d+)</span>')
ACT = re.compile(r"<td><strong>([a-z_.]+)</strong>")
CARD = re.compile(r'href="/console/inbox/(run_\w+)".*?datetime="([^"]+)"', re.S)


@dataclass
class Journal:
    """What the journal of the tenant says, read entry by entry."""

    began: list[str] = field(default_factory=list)
    entries: dict[str, list[Entry]] = field(default_factory=dict)

    @cached_property
    def states(self) -> dict[str, str]:
        return {run: state_of(entries) for run, entries in self.entries.items()}

    def waiting(self, role: str) -> dict[str, int]:
        """The deadline of each open question to a role, by run."""
        asked = {run: body(entries, "approval.asked") for run, entries in self.entries.items()}
        return {
            run: said["deadline_us"]
            for run, said in asked.items()
            if said and said["required_role"] == role and self.states[run] == "waiting"
        }


def state_of(entries: list[Entry]) -> str:
    if ended := body(entries, "run.ended"):
        return str(ended["end"])
    return "waiting" if body(entries, "approval.asked") else "running"


def has_ended(entries: list[Entry]) -> bool:
    return bool(entries) and entries[-1].kind == "run.ended"


def body(entries: list[Entry], kind: str) -> dict[str, Any]:
    """The last body of this kind, or an empty one."""
    found = [entry.body for entry in entries if entry.kind == kind]
    read = loads(found[-1]) if found and found[-1] else {}
    assert isinstance(read, dict)
    return read


def read_journal(face: HttpFace, known: Journal | None = None) -> Journal:
    """Read the journal. Runs that had ended when `known` was read are as they were."""

    async def read() -> Journal:
        store, journal = face.app.stores.tenant(TENANT), Journal()
        lines = await store.read(INDEX, after=0, limit=1_000_000)
        journal.began = [line.key for line in lines if line.kind == "run.indexed"]
        for run in journal.began:
            kept = known.entries.get(run, []) if known else []
            journal.entries[run] = kept if has_ended(kept) else list((await store.read_run(run)).entries)
        return journal

    found: Journal = face.call(read())
    return found


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("numbers")) as made:

        async def fill() -> None:
            store = made.app.stores.tenant(TENANT)
            for start in range(0, RUNS, AT_ONCE):
                numbers = range(start, min(start + AT_ONCE, RUNS))
                await asyncio.gather(*(store.commit(verify.synthetic(number)) for number in numbers))

        with patch.object(verify, "KEYS", made.app.keys):
            made.call(fill())
        for _ in range(WAITING):
            made.waiting_run()
        for _ in range(DECIDED):
            made.send("POST", "/v1/runs", json=made.request())
        yield made


@contextmanager
def runs_go_on(face: HttpFace) -> Iterator[None]:
    """Runs begin, wait and end all the time."""
    stop = threading.Event()

    def go() -> None:
        while not stop.wait(0.2):
            face.waiting_run()
            face.send("POST", "/v1/runs", json=face.request())

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def pages(face: HttpFace, path: str, by: str) -> Iterator[str]:
    """The texts of a list, page by page."""
    while path:
        page = face.page(path, by)
        assert page.status_code == 200, page.text
        yield page.text
        older = OLDER.search(page.text)
        path = html.unescape(older[1]) if older else ""


def test_the_list_of_runs_is_every_run_once_newest_first_with_its_state(face: HttpFace) -> None:
    with runs_go_on(face):
        before = read_journal(face)
        rows = [row for text in pages(face, "/runs", OPERATOR) for row in ROW.findall(text)]
        after = read_journal(face, before)
    listed = [run for run, _ in rows]
    first = len(after.began) - after.began[::-1].index(listed[0])
    assert listed == after.began[:first][::-1], "each run once, newest first"
    assert len(listed) >= len(before.began) > RUNS
    assert all(state in (before.states.get(run), after.states[run], "running") for run, state in rows)
    assert Counter(state for _, state in rows)["rejected"] >= RUNS


@pytest.mark.parametrize("state", ["waiting", "completed", "rejected"])
def test_a_filter_by_state_lists_exactly_the_runs_in_it(face: HttpFace, state: str) -> None:
    with runs_go_on(face):
        before = read_journal(face)
        listed = [run for text in pages(face, f"/runs?state={state}", OPERATOR) for run, _ in ROW.findall(text)]
        after = read_journal(face, before)
    assert len(listed) == len(set(listed))
    least = {run for run, is_in in before.states.items() if is_in == state}
    most = {run for run, is_in in after.states.items() if is_in == state}
    assert least <= set(listed) <= most


def test_the_inbox_counts_and_lists_what_waits_for_its_reader_and_nobody_else(face: HttpFace) -> None:
    with runs_go_on(face):
        before = read_journal(face).waiting("finance_lead")
        texts = list(pages(face, "/inbox", LEAD))
        after = read_journal(face).waiting("finance_lead")
    counted = [int(COUNT.findall(text)[0]) for text in texts]
    assert len(before) <= counted[0] <= counted[-1] <= len(after)
    cards = [card for text in texts for card in CARD.findall(text)]
    assert before.keys() <= {run for run, _ in cards} <= after.keys()
    due = [at for _, at in cards]
    assert due == sorted(due), "most urgent first"
    assert len(due) == len({run for run, _ in cards}) == counted[-1]
    for person in (OPERATOR, REQUESTER):
        assert COUNT.findall(face.page("/inbox", person).text) == ["0"]


def test_a_verification_and_a_list_of_acts_count_what_the_journal_has(face: HttpFace) -> None:
    """Only what is there before: a verification of 3,000 runs takes a while."""
    before = read_journal(face)
    with runs_go_on(face):
        text = face.page(f"/audit/verification?first=1&last={RUNS * 2}", OPERATOR).text
    streams, entries = (int(one) for one in re.findall(r'<dd id="(?:streams|entries)">(\d+)</dd>', text))
    first = before.began[:RUNS]
    # The index is a stream too.
    assert (streams, entries) == (RUNS + 1, sum(len(before.entries[run]) for run in first) + RUNS * 2)
    control = face.call(face.app.stores.tenant(TENANT).read("control", after=0, limit=10_000))
    acts = [entry for entry in control if entry.kind in ACT_ARGUMENTS]
    listed = [row for text in pages(face, "/sections/audit", OPERATOR) for row in ACT.findall(text)]
    assert listed == [entry.kind for entry in reversed(acts)]


def test_a_chain_has_every_entry_of_its_run(face: HttpFace) -> None:
    run = face.waiting_run()
    entries = read_journal(face).entries[run]
    text = face.page(f"/audit/chain?run={run}", OPERATOR).text
    assert re.findall(r'<dd id="entries">(\d+)</dd>', text) == [str(len(entries))]
    assert re.findall(r"<strong>1 – (\d+)</strong>|<strong>\d+ – (\d+)</strong>", text)
    assert entries[-1].hash in text


def test_the_budget_of_a_run_is_the_sum_of_its_entries(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    entries = read_journal(face).entries[run]
    dispatched = [loads(entry.body) for entry in entries if entry.kind == "tool.dispatching" and entry.body]
    text = face.page(f"/runs/{run}", OPERATOR).text
    used = dict(re.findall(r'<meter id="(\w+)"[^>]*value="([\d.]+)"', text))
    assert int(used["max_tool_calls"]) == len(dispatched) > 0
    usage = face.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["record"]["budget_usage"]
    assert int(used["max_tool_calls"]) == usage["tool_calls"]
    numbers = {int(number) for number in re.findall(r"entry (\d+)</a></small>", text)}
    assert numbers
    assert numbers <= {entry.seq for entry in entries}
