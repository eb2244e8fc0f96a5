"""Prohibitions of a run: from the decision on in which a rule matched, and only for the tools that it names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from contextos.action.gateway.prohibitions import Prohibitions
from tests.policies import decide, leveled, policy, rule

ALLOWED = decide(policy(leveled(rule("R_ALLOW", {"==": [1, 1]}, allow=True))), {})
PROHIBITING = {"R_NO_MORE": (str(ALLOWED.capability_id),)}


def decided(*rules: str, several: bool = False) -> Any:
    body: dict[str, Any] = {"matched_rule_ids": list(rules)}
    return SimpleNamespace(kind="policy.decided", body={"decisions": [body]} if several else body)


def test_a_tool_is_denied_once_a_rule_has_matched_that_prohibits_it() -> None:
    for several in (False, True):
        log: list[Any] = [SimpleNamespace(kind="run.pinned", body={})]
        found = Prohibitions(log)
        assert found.bind(ALLOWED, PROHIBITING) is ALLOWED
        log.append(decided("R_OTHER", several=several))
        assert found.bind(ALLOWED, PROHIBITING) is ALLOWED
        log.append(decided("R_NO_MORE", several=several))
        for _ in range(2):
            denied = found.bind(ALLOWED, PROHIBITING)
            assert (denied.allowed, denied.reason, denied.denying_rule_ids) == (False, "prohibited", ("R_NO_MORE",))
        assert found.bind(ALLOWED, {"R_NO_MORE": ("another.tool",)}) is ALLOWED


def test_what_is_denied_already_keeps_its_reason() -> None:
    denied = ALLOWED.model_copy(update={"allowed": False, "reason": "no_rule_allows"})
    assert Prohibitions([decided("R_NO_MORE")]).bind(denied, PROHIBITING) is denied
