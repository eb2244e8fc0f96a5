"""The criteria by which a search selects runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from contextos.contracts.entries.terms import LIVE, term
from contextos.contracts.envelopes.record import DecisionRecord
from contextos.contracts.envelopes.verdicts import DecisionStatus

_OF_LIVE_RUNS: Final = ("IN_FLIGHT", "DEFERRED")


class Searched(Protocol):
    """What a search reads of a `Run`."""

    @property
    def began_at_us(self) -> int: ...
    @property
    def status(self) -> DecisionStatus | None: ...
    @property
    def record(self) -> DecisionRecord | None: ...
    @property
    def fault(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class RunSearch:
    """The criteria of a search; None: every run fits. A run has to fit all that are given.

    `subject` is an entity that the decision is about. `decision` is the name of the decision spec, or the id of the
    record. `approver` answered a question of the run. `rule` matched in a policy decision of the run. `status` is the
    status of the decision. The run began at `began_from_us` or later, and before `began_before_us` (Unix microseconds).
    """

    subject: str | None = None
    decision: str | None = None
    approver: str | None = None
    rule: str | None = None
    status: DecisionStatus | None = None
    began_from_us: int | None = None
    began_before_us: int | None = None

    def terms(self) -> list[tuple[int, ...]]:
        """Return the terms of every run that fits, except for the time: the terms that few runs have come first."""
        criteria = {
            "subject": self.subject,
            "approver": self.approver,
            "rule": self.rule,
            "decision": self.decision,
            "status": self.status,
        }
        filters = [(name, value) for name, value in criteria.items() if value is not None]
        return [
            (LIVE,) if name == "status" and value in _OF_LIVE_RUNS else (term(name, value),) for name, value in filters
        ]

    def finds(self, run: Searched) -> bool:
        """Return whether a run that was found fits. A run that does not verify always fits: its content may be untrue,
        so it is not a reason to leave the run out.
        """
        return run.fault is not None or (self._fits_time(run) and self._fits_record(run))

    def _fits_time(self, run: Searched) -> bool:
        begins_in_time = self.began_from_us is None or run.began_at_us >= self.began_from_us
        return begins_in_time and (self.began_before_us is None or run.began_at_us < self.began_before_us)

    def _fits_record(self, run: Searched) -> bool:
        if self.status not in (None, run.status):
            return False
        if (self.subject, self.decision, self.approver, self.rule) == (None, None, None, None):
            return True
        record = run.record
        if record is None:
            return False
        return (
            self.subject in (None, *record.subject_ids)
            and self.decision in (None, record.decision_key, record.record_id)
            and self.approver in (None, *(approval.approver for approval in record.approvals))
            and self.rule in (None, *(rule for decision in record.policy_decisions for rule in decision.rule_ids))
        )


EVERY_RUN = RunSearch()
"""The search that every run fits."""
