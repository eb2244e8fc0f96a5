"""`kill -9` at every durable boundary of the refund run, then a fresh process: one refund, a legal end, a journal.

The list of boundaries is not written here: it is what a run that nobody kills passes (every commit of its store, every
call of its adapters; before and after each), and the tests below hold it against the run's own journal.

By default the leg with the approval is killed everywhere on SQLite, and around its payment on PostgreSQL. The other
legs and places run with the soak runs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from contextos.runtime import state_machine
from tests.e2e.crash_driver import Job
from tests.postgres import Database, Server
from tests.world import publish_world, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAYMENT = "adp_payments.issue_refund"
PAST_NOT_AFTER_US = 60_000_000
"""Later than any call of the run may still be accepted, and sooner than the gate's deadline."""
PAST_LEASE_US = 200_000_000

STOPPED = [
    ("keyed", 1.5),
    pytest.param("lookup", 17.0, marks=pytest.mark.soak),
    pytest.param("none", 17.0, marks=pytest.mark.soak),
]
"""How payments are made, and when another takes over: past the lease; where the time of the call decides, past that and
the five seconds by which clocks can differ.
"""

MARKED = {"record.revised", "approval.answered", "tool.dispatching", "run.ended"}
"""The kinds after which docs/design/journal.md has a barrier, for a refund with approval whose payment has a key."""

JobResult = dict[str, Any]


@dataclass(frozen=True)
class Leg:
    """One process of the refund run: what it does, and in which state of the workspace it begins."""

    act: str
    amount: int
    start: str

    def __str__(self) -> str:
        return f"{self.act}-{self.amount}"


UNGATED = Leg("invoke", 900, "published")
ASKING = Leg("invoke", 4200, "published")
APPROVING = Leg("approve", 4200, "asked")
LEGS = (UNGATED, ASKING, APPROVING)
PLACES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)]
BY_DEFAULT = [("sqlite", APPROVING, "everywhere"), ("postgresql", APPROVING, "around the payment")]
WITH_SOAK = [
    *(("sqlite", leg, "everywhere") for leg in (UNGATED, ASKING)),
    *(("postgresql", leg, "everywhere") for leg in LEGS),
]
SOAKED = [pytest.param(leg, id=str(leg), marks=pytest.mark.soak) for leg in (UNGATED, ASKING)]
KILLED = [
    pytest.param(*killed, id="-".join(map(str, killed)), marks=marks)
    for cases, marks in ((BY_DEFAULT, []), (WITH_SOAK, [pytest.mark.soak]))
    for killed in cases
]


NO_KEYS = [
    pytest.param(UNGATED, "lookup", id="invoke-900-lookup"),
    pytest.param(UNGATED, "none", id="invoke-900-none", marks=pytest.mark.soak),
    pytest.param(APPROVING, "none", id="approve-4200-none"),
]


class Machine:
    """Runs jobs in real processes, each in a workspace of its own copied from an idle one.

    Where the store is a `server`, each workspace has a database of its own there. Nobody knows there that a process
    died, so the process that finishes comes when its lease has run out.
    """

    def __init__(self, path: Path, server: Server | None = None) -> None:
        self.path = path
        self._server = server
        self._databases: dict[Path, Database] = {}
        self._later_us: Counter[Path] = Counter()
        self._numbers = count()

    def published(self) -> Path:
        """A workspace where nothing has been asked yet."""
        made = self.path / "published"
        made.mkdir()
        if self._server is not None:
            self._store_in(made, self._server.database())
        run(publish_world(made))
        return made

    def workspace(self, origin: Path) -> Path:
        made = self.path / f"ws{next(self._numbers)}"
        shutil.copytree(origin, made)
        if self._server is not None:
            copied = self._server.database(like=self._databases[origin].name)
            # It is the test's trick and no restore: the copy does not know of the place that it came from.
            copied.execute("DELETE FROM contextos.documents WHERE collection = 'epoch' AND key = 'place'")
            self._store_in(made, copied)
            self._later_us[made] = self._later_us[origin]
        return made

    def _store_in(self, workspace: Path, database: Database) -> None:
        self._databases[workspace] = database
        (workspace / "place").write_text(database.app)

    def job(self, act: str, workspace: Path, later_us: int = 0, **rest: Any) -> Job:
        if self._server is not None:
            self._later_us[workspace] += PAST_LEASE_US if act == "finish" else 0
            later_us = max(later_us, self._later_us[workspace])
        log = str(self.path / f"log{next(self._numbers)}")
        return Job(act=act, workspace=str(workspace), log=log, later_us=later_us, **rest)

    def close(self) -> None:
        for database in self._databases.values():
            database.drop()

    def run(self, *jobs: Job) -> list[JobResult]:
        folder = self.path / f"plan{next(self._numbers)}"
        folder.mkdir()
        plan = folder / "jobs.json"
        plan.write_text(json.dumps([asdict(job) for job in jobs]), "utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "tests.e2e.crash_driver", str(plan)],
            cwd=ROOT,
            text=True,
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        )
        assert done.returncode == 0, done.stderr
        answers: list[JobResult] = json.loads((folder / "answer.json").read_text("utf-8"))
        for answer in answers:
            assert answer["exit"] in (0, -signal.SIGKILL), done.stderr
        return answers


def passed(job: Job) -> list[JobResult]:
    """The boundaries that a job passed, the one where it died included."""
    return [json.loads(line) for line in Path(job.log).read_text("utf-8").splitlines()]


def labels(boundaries: list[JobResult]) -> list[str]:
    """Boundaries without what differs between two runs of one request."""
    return [json.dumps({name: value for name, value in one.items() if name != "run"}) for one in boundaries]


@dataclass(frozen=True)
class Recorded:
    """The boundaries of a leg, and what the workspace held when it began."""

    origin: Path
    boundaries: list[JobResult]
    audit: JobResult


@pytest.fixture(scope="module", params=PLACES)
def host(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Machine]:
    server: Server | None = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    machine = Machine(tmp_path_factory.mktemp("crash"), server)
    yield machine
    machine.close()


@pytest.fixture(scope="module")
def legs(host: Machine) -> dict[Leg, Recorded]:
    """Every leg once, without a kill: the boundaries that it passes."""
    published = host.published()
    asked = host.workspace(published)
    host.run(host.job("invoke", asked, amount=4200))
    origins = {"published": published, "asked": asked}
    jobs = [host.job(leg.act, host.workspace(origins[leg.start]), amount=leg.amount) for leg in LEGS]
    host.run(*jobs)
    audits = host.run(*(host.job("finish", Path(job.workspace), amount=job.amount) for job in jobs))
    return {
        leg: Recorded(origins[leg.start], passed(job), audit)
        for leg, job, audit in zip(LEGS, jobs, audits, strict=True)
    }


def moving(boundaries: list[JobResult]) -> list[int]:
    """The boundaries at which something durable is about to change or has just changed; reads change nothing."""
    return [n for n, one in enumerate(boundaries) if one["what"] == "commit" or one["capability"] == PAYMENT]


def killed(
    host: Machine, leg: Leg, recorded: Recorded, payments: str = "keyed", at: Sequence[int] | None = None
) -> list[Job]:
    """The leg once per boundary, killed there."""
    jobs = [
        host.job(leg.act, host.workspace(recorded.origin), amount=leg.amount, payments=payments, kill_at=number)
        for number in (range(len(recorded.boundaries)) if at is None else at)
    ]
    for answer in host.run(*jobs):
        assert answer["exit"] == -signal.SIGKILL
    return jobs


def commits(boundaries: list[JobResult]) -> Iterator[JobResult]:
    return (one for one in boundaries if one["what"] == "commit" and one["side"] == "after")


def one_refund(result: JobResult) -> None:
    assert result["state"] == "completed"
    assert len(result["refunds"]) == 1
    assert result["record"]["outputs"]["transaction_id"] == result["refunds"][0]["transaction_id"]
    audited(result)


def audited(result: JobResult) -> None:
    assert result["state"] in state_machine.ENDS
    assert len(result["refunds"]) <= 1
    assert {"stream": result["run_id"], "ended": True} in [
        {name: one[name] for name in ("stream", "ended")} for one in result["verified"]
    ]
    assert result["replayed"]["record_hash"] == result["record"]["record_hash"]
    assert result["replayed"]["compared"] == len(result["entries"])
    assert result["same_again"]


@pytest.mark.requirement("J-BARRIER")
def test_the_list_of_boundaries_is_complete(legs: dict[Leg, Recorded]) -> None:
    ungated = legs[UNGATED]
    gated = [*legs[ASKING].boundaries, *legs[APPROVING].boundaries]
    for boundaries, result in ((ungated.boundaries, ungated.audit), (gated, legs[APPROVING].audit)):
        of_run = [one for one in commits(boundaries) if one["entries"]]
        # Every entry of the run, in order, became durable in one of these commits, and no signed head lies elsewhere.
        assert [entry[1:] for one in of_run for entry in one["entries"]] == [entry[1:] for entry in result["entries"]]
        assert set(result["signed"]) <= {one["entries"][-1][0] for one in of_run}
        # Each boundary is a pair: before it became durable, and after.
        for side in ("before", "after"):
            assert {one["what"] for one in boundaries if one["side"] == side} == {"commit", "call"}
        assert [one.get("capability") for one in boundaries].count(PAYMENT) == 2
    ends = {one["entries"][-1][1] for one in commits(gated) if one["entries"]}
    assert ends == MARKED


def test_every_recorded_leg_pays_once_when_nobody_kills_it(legs: dict[Leg, Recorded]) -> None:
    assert set(legs) == set(LEGS)
    for recorded in legs.values():
        one_refund(recorded.audit)


@pytest.mark.requirement("J-BARRIER", "J-DURABLE")
@pytest.mark.parametrize(("host", "leg", "where"), KILLED, indirect=["host"])
def test_kill_9_at_every_boundary_leaves_one_refund_a_legal_end_and_a_journal_that_verifies(
    leg: Leg, where: str, host: Machine, legs: dict[Leg, Recorded]
) -> None:
    recorded = legs[leg]
    everywhere = where == "everywhere"
    at = list(range(len(recorded.boundaries))) if everywhere else around_the_payment(recorded.boundaries)
    jobs = killed(host, leg, recorded, at=at)
    for number, job in zip(at, jobs, strict=True):
        assert labels(passed(job)) == labels(recorded.boundaries)[: number + 1], "it died where the list says"
    finished = host.run(*(host.job("finish", Path(job.workspace), amount=leg.amount) for job in jobs))
    for result in finished:
        one_refund(result)
        # A run of which anything is durable comes to its end, or to its question, without anybody asking again.
        assert result["resumed"] in ({None} if result["durable"] is None else {"completed", "waiting"})
        assert result["waited_for"].count("approval") <= 1
    assert not everywhere or {result["durable"] for result in finished} >= (
        {None} if leg.act == "invoke" else {"waiting"}
    )


@pytest.mark.parametrize("leg", [APPROVING, *SOAKED], ids=str)
def test_a_recovery_that_is_killed_too_still_pays_once(leg: Leg, host: Machine, legs: dict[Leg, Recorded]) -> None:
    jobs = killed(host, leg, legs[leg], at=moving(legs[leg].boundaries))
    rehearsed = [host.job("finish", host.workspace(Path(job.workspace)), amount=leg.amount) for job in jobs]
    host.run(*rehearsed)
    again = [
        host.job("finish", Path(job.workspace), amount=leg.amount, kill_at=(7 * number + 3) % len(passed(rehearsal)))
        for number, (job, rehearsal) in enumerate(zip(jobs, rehearsed, strict=True))
        if passed(rehearsal)
    ]
    assert all(result["exit"] == -signal.SIGKILL for result in host.run(*again))
    for result in host.run(*(host.job("finish", Path(job.workspace), amount=leg.amount) for job in again)):
        one_refund(result)


@pytest.mark.requirement("J-BARRIER")
@pytest.mark.parametrize(("leg", "payments"), NO_KEYS)
def test_where_payments_have_no_keys_a_crash_never_pays_twice(
    leg: Leg, payments: str, host: Machine, legs: dict[Leg, Recorded]
) -> None:
    origin = legs[leg].origin
    if leg.start == "asked":  # a run is pinned to the definition of its adapters, so it is asked anew
        origin = host.workspace(legs[ASKING].origin)
        host.run(host.job("invoke", origin, amount=leg.amount, payments=payments))
    rehearsal = host.job(leg.act, host.workspace(origin), amount=leg.amount, payments=payments)
    host.run(rehearsal)
    jobs = killed(host, leg, Recorded(origin, passed(rehearsal), {}), payments)
    finished = host.run(
        *(
            host.job("finish", Path(job.workspace), amount=leg.amount, payments=payments, later_us=PAST_NOT_AFTER_US)
            for job in jobs
        )
    )
    seen = set()
    for job, result in zip(jobs, finished, strict=True):
        audited(result)
        assert (result["state"] == "completed") == (len(result["refunds"]) == 1)
        uncertain = durable(job, "tool.dispatching") and not durable(job, "tool.returned")
        paid = [one["side"] for one in passed(job) if one.get("capability") == PAYMENT] == ["before", "after"]
        if paid or not uncertain:
            one_refund(result)
        # Without a key and without a lookup only a person can know.
        assert (result["waited_for"][-1:] == ["settlement"]) == (payments == "none" and uncertain)
        seen.add((uncertain, paid, result["state"]))
    assert {(True, True, "completed"), (False, False, "completed")} <= seen


def durable(job: Job, kind: str) -> bool:
    """Whether the payment's entry of this kind was durable when the job died."""
    entries = [entry for one in commits(passed(job)) for entry in one["entries"]]
    return any(entry[1] == kind and "/s3/" in entry[2] for entry in entries)


@pytest.mark.requirement("J-FENCED")
@pytest.mark.parametrize("leg", [SOAKED[0], APPROVING], ids=str)
def test_a_process_that_paused_past_its_lease_writes_nothing_more_and_pays_nothing_again(
    leg: Leg, host: Machine, legs: dict[Leg, Recorded]
) -> None:
    recorded = legs[leg]
    stopped = [
        host.job(leg.act, host.workspace(recorded.origin), amount=leg.amount, kill_at=number, by="SIGSTOP")
        for number in moving(recorded.boundaries)
    ]
    others = [host.job("finish", Path(job.workspace), amount=leg.amount, later_us=PAST_LEASE_US) for job in stopped]
    for one in continued_after_another_finished(host, leg, stopped, others):
        assert one["state"] in {"completed", "already_answered"}


@pytest.mark.requirement("J-FENCED", "A-NO-BLIND-RETRY")
@pytest.mark.parametrize("host", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize(("payments", "wait_s"), STOPPED)
def test_a_worker_that_is_stopped_while_its_lease_runs_out_is_fenced_off_by_the_real_clock(
    payments: str, wait_s: float, host: Machine, legs: dict[Leg, Recorded]
) -> None:
    """Before the commit that dispatches; between it and the call; between the answer and its commit."""
    recorded = legs[UNGATED]
    stopped = [
        host.job(
            UNGATED.act,
            host.workspace(recorded.origin),
            amount=UNGATED.amount,
            kill_at=number,
            by="SIGSTOP",
            payments=payments,
            lease_ttl_s=1,
        )
        for number in around_the_payment(recorded.boundaries)
    ]
    others = [
        Job("finish", job.workspace, f"{job.log}.other", amount=UNGATED.amount, payments=payments, wait_s=wait_s)
        for job in stopped
    ]
    continued = continued_after_another_finished(host, UNGATED, stopped, others)
    # Its commits while another process drove were refused with a type; it ended with the other's result.
    refused = [one["error"] for job in stopped for one in passed(job) if one["side"] == "refused"]
    assert len(refused) == 4
    # `untimely` where the store's clock was past the time of the write.
    assert set(refused) <= {"conflict", "untimely"}
    # Where it was stopped before the call, that was certainly not made, and only one with a key is made again.
    before_call = "completed" if payments == "keyed" else "escalated"
    assert [one["state"] for one in continued] == ["completed", before_call, "completed", "completed"]


def around_the_payment(boundaries: list[JobResult]) -> list[int]:
    """Before and after the commit that dispatches it, after the call, and before the commit of its outcome."""
    call = next(n for n, one in enumerate(boundaries) if one.get("capability") == PAYMENT)
    return [call - 2, call - 1, call + 1, call + 2]


def continued_after_another_finished(host: Machine, leg: Leg, stopped: list[Job], others: list[Job]) -> list[JobResult]:
    """Each stopped job goes on when the other on its workspace is done, and changes nothing of what that one did."""
    answers = host.run(*stopped, *others)
    continued, finished = answers[: len(stopped)], answers[len(stopped) :]
    after = host.run(
        *(host.job("finish", Path(job.workspace), amount=leg.amount, payments=job.payments) for job in stopped)
    )
    for late, first, last in zip(continued, finished, after, strict=True):
        assert (late["exit"], first["exit"]) == (0, 0)
        audited(first)
        assert (first["state"] == "completed") == (len(first["refunds"]) == 1)
        assert late["run_id"] == first["run_id"]
        assert late["state"] in {first["state"], "already_answered"}
        for name in ("record", "entries", "refunds"):
            assert last[name] == first[name], "what was stopped changed nothing"
        assert streams(last) == streams(first), "what was stopped changed nothing"
        before = first["control"]
        assert last["control"][: len(before)] == before
        for kind, key, said in last["control"][len(before) :]:
            # Who was about to sign is stated once more, as before; and that the clock of this process was behind.
            assert kind == "clock.went_back" or [kind, key, said] in before
    return continued


def streams(result: JobResult) -> list[Any]:
    """What `verify` found of each stream but `control`."""
    return [one for one in result["verified"] if one["stream"] != "control"]
