"""The tools of a suite behind the gateway: a workspace on SQLite, one pack, each conversation a session of the gate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import contextos
from benchmarks.agentdojo.people import Answer, Question
from benchmarks.agentdojo.tools import SuiteTools
from contextos.contracts.ports.gates import CallAnswer, Done, Waiting
from contextos.control.lint.money import EACH_IS_ASKED, money_of
from contextos.testing import Person
from contextos.workspace import make_keys

TENANT: Final = "household"
ASKED: Final = Person("liam")
PUBLISHER: Final = Person("olga")
PACK: Final = {
    "name": "assistant",
    "version": "1.0.0",
    "tenant": TENANT,
    "summary": "An assistant reads what others wrote, and acts for its user.",
    "who": ["holder"],
    "approver": "cosigner",
    "redaction": ["secret"],
    "budget": {"max_tool_calls": 40},
}
"""No rule: a person is asked about every write, and about a read that carries an untrusted value out."""


@dataclass(slots=True)
class GovernedSuite:
    """A deployment with one pack. `answer` is the person who is asked now. `ended` are the runs that have ended, and
    `questions` counts the answers that were given to questions.
    """

    app: Any
    tools: SuiteTools
    answer: Answer
    ended: list[str] = field(default_factory=list)
    questions: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=count)

    def open(self, request: str, _runtime: Any, environment: Any) -> GovernedTools:
        """Begin a session about a request of the user."""
        self.tools.environment = environment
        name = f"conversation-{next(self._numbers)}"
        gate = self.app.gate(session=name, user="emma", token="tok_emma", agent="agt_assistant", message=request)
        return GovernedTools(self, gate, request)

    def replays(self, run_id: str) -> bool:
        """Whether a run replays to the record that it left."""
        replayed = self.app.call(contextos.replay, self.app.deployment, TENANT, run_id)
        view = self.app.deployment.view(TENANT, run_id)
        return bool(replayed.record_hash == view.record["record_hash"])


@dataclass(slots=True)
class GovernedTools:
    """The tools of one session. A call that waits for a person is made again once the person has answered."""

    here: GovernedSuite
    gate: Any
    request: str
    over: bool = False
    wrote: bool = False
    _numbers: Iterator[int] = field(default_factory=count)

    def call(self, name: str, args: Mapping[str, Any]) -> Any:
        if self.over:
            return None
        call_id = f"call-{next(self._numbers)}"
        said = self._ask(name, args, call_id)
        if isinstance(said, Waiting) and self._answered():
            said = self._ask(name, args, call_id)
        self.over = self.over or bool(getattr(said, "ended", False))
        if not isinstance(said, Done) or said.output is None:
            return None
        self.wrote = self.wrote or name not in self.here.tools.reads
        return said.output

    def close(self) -> None:
        if not self.over:
            self.gate.finish("approved" if self.wrote else "denied")
            self.here.ended.append(self.gate.run_id)

    def _ask(self, name: str, args: Mapping[str, Any], call_id: str) -> CallAnswer:
        said: CallAnswer = self.gate.call(f"tools.{name}", dict(args), call_id=call_id)
        return said

    def _answered(self) -> bool:
        """Ask the person."""
        asked = self.here.app.approvals.get(TENANT, self.gate.run_id)
        args = {one.name: one.value for one in asked.args if one.value is not None}
        secrets = {one.name: one.value[0] == "request" for one in asked.secrets}
        shown = {name: value for name, value in args.items() if name not in secrets}
        tool = asked.capability_id.partition(".")[2]
        verdict = self.here.answer(Question(self.request, tool, shown, tuple(secrets.values())))
        said = "approved" if verdict else "denied"
        self.here.questions[said] += 1
        self.here.app.call(ASKED.answer, self.here.app, self.gate.view(), said)
        return verdict


@contextmanager
def governed(folder: Path, tools: SuiteTools, answer: Answer) -> Iterator[GovernedSuite]:
    """Open a new workspace in `folder`, with `PACK` in force."""
    folder.mkdir()
    make_keys(folder / "keys")
    (folder / "directory.json").write_text(json.dumps({TENANT: _people()}), "utf-8")
    (folder / "contextos.toml").write_text('witness = "off"\n', "utf-8")
    pack = folder / "pack.yaml"
    moving = [f"tools.{one.name}" for one in tools.adapter.describe().capabilities if money_of(one)]
    asked = {name: {"without_sum": EACH_IS_ASKED} for name in moving}
    pack.write_text(json.dumps(PACK | {"permissions": asked}), "utf-8")
    with contextos.open(folder, adapters=[tools.adapter], dev=True) as app:
        app.install(contextos.read_pack(pack, tools=[tools.adapter]), by=PUBLISHER.actor())
        yield GovernedSuite(app, tools, answer)


def _people() -> dict[str, Any]:
    agent = {
        "agent_id": "agt_assistant",
        "agent_urn": "agent:household/assistant@1.0.0",
        "workload_identity": "spiffe://household/agents/assistant",
        "role": "assistant",
        "owner": "provider",
        "lifecycle": "active",
        "ceiling": "destructive",
        "scopes": [],
    }
    token = {"subject": "emma", "agent_id": "agt_assistant", "scopes": [], "expires_at": 4102444800}
    user = {"user_id": "emma", "role": "holder", "roles": ["holder"], "scopes": [], "delegation_live": True}
    return {
        "users": [user],
        "agents": [agent],
        "delegations": {"tok_emma": token},
        "approvers": [_approver(ASKED, "cosigner"), _approver(PUBLISHER, "publisher", "policy_admin")],
    }


def _approver(person: Person, *roles: str) -> dict[str, Any]:
    granted = dict.fromkeys(roles, "office")
    keys = [person.listed_key()]
    return {"approver_id": person.user_id, "roles": list(roles), "granted_by": granted, "keys": keys}
