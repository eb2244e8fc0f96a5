"""Which tools a run can no longer use: from a decision on in which a rule matched that prohibits them, for the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.journal import Logged


class Prohibitions:
    """The prohibitions in force in a run, from its journal entries `log`, which only grows.

    `bind` goes on from the entries that it has read before.
    """

    def __init__(self, log: Sequence[Logged]) -> None:
        self._log, self._read = log, 0
        self._matched: dict[str, None] = {}

    def bind(self, decision: PolicyDecision, prohibiting: Mapping[str, Sequence[str]]) -> PolicyDecision:
        """Return the decision about a tool, denied if an earlier decision of the run had a rule that prohibits it.

        `prohibiting` has the tools that a rule prohibits, by its id.
        """
        for at in range(self._read, len(self._log)):
            if prohibiting and self._log[at].kind == "policy.decided":
                body = self._log[at].body
                for one in body.get("decisions", [body]):
                    self._matched |= dict.fromkeys(one["matched_rule_ids"])
        self._read = len(self._log)
        by = tuple(rule for rule in self._matched if decision.capability_id in prohibiting.get(rule, ()))
        if not by or not decision.allowed:
            return decision
        return decision.model_copy(update={"allowed": False, "reason": "prohibited", "denying_rule_ids": by})
