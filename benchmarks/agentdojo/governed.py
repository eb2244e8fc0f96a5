"""The bank behind the gateway: a workspace on SQLite, one pack, and each conversation a session of the gate."""

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
from benchmarks.agentdojo.people import Answer
from benchmarks.agentdojo.tools import Bank
from contextos.app import make_keys
from contextos.operations.gate.gate import CallAnswer, Done, Waiting
from contextos.testing import Person

TENANT: Final = "household"
ASKED: Final = Person("liam")
PUBLISHER: Final = Person("olga")


@dataclass(slots=True)
class GovernedBank:
    """A deployment with one pack. `answer` is the person who is asked now. `ended` are the runs that have ended, and
    `questions` counts the answers that were given to questions.
    """

    app: Any
    bank: Bank
    answer: Answer
    ended: list[str] = field(default_factory=list)
    questions: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=count)

    def open(self, request: str, _runtime: Any, environment: Any) -> GovernedTools:
        """Begin a session about a request of the user."""
        self.bank.environment = environment
        name = f"conversation-{next(self._numbers)}"
        gate = self.app.gate(session=name, user="emma", token="tok_emma", agent="agt_banker", message=request)
        return GovernedTools(self, gate, request)

    def replays(self, run_id: str) -> bool:
        """Whether a run replays to the record that it left."""
        replayed = self.app.call(contextos.replay, self.app.deployment, TENANT, run_id)
        view = self.app.deployment.view(TENANT, run_id)
        return bool(replayed.record_hash == view.record["record_hash"])


@dataclass(slots=True)
class GovernedTools:
    """The tools of one session. A call that waits for a person is made again once the person has answered."""

    here: GovernedBank
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
        self.wrote = self.wrote or name not in self.here.bank.reads
        return said.output["result"]

    def close(self) -> None:
        if not self.over:
            self.gate.finish("approved" if self.wrote else "denied")
            self.here.ended.append(self.gate.run_id)

    def _ask(self, name: str, args: Mapping[str, Any], call_id: str) -> CallAnswer:
        said: CallAnswer = self.gate.call(f"bank.{name}", dict(args), call_id=call_id)
        return said

    def _answered(self) -> bool:
        """Ask the person. If nobody answers, the session waits until its question times out: no call is made in it."""
        question = self.here.app.approvals.get(TENANT, self.gate.run_id)
        verdict = self.here.answer(self.request, self._destinations(question))
        self.over = verdict is None
        said = {True: "approved", False: "denied", None: "unanswered"}[verdict]
        self.here.questions[said] += 1
        if verdict is not None:
            self.here.app.call(ASKED.answer, self.here.app, self.gate.view(), said)
        return verdict is not None

    def _destinations(self, question: Any) -> list[Any]:
        """The destinations that the person looks at: those that the question marks, or else all. Of a secret the
        question says only where it was found: what the user's request states is for the person as if it were shown. An
        argument that is null, as a default is that the agent left out, says nothing of where something goes.
        """
        values = {one.name: one.value for one in question.args if one.value is not None}
        told = self.here.bank.destinations(question.capability_id) or list(values)
        marked = {one.name for one in question.untrusted}
        stated = {one.name for one in question.secrets if one.value[0] == "request"} - marked
        asked = [name for name in told if name in values and name not in stated]
        return [values[name] for name in [one for one in asked if one in marked] or asked]


@contextmanager
def governed(folder: Path, pack: Path, bank: Bank, answer: Answer) -> Iterator[GovernedBank]:
    """Open a new workspace in `folder` with this pack in force."""
    folder.mkdir()
    make_keys(folder / "keys")
    (folder / "directory.json").write_text(json.dumps({TENANT: _people()}), "utf-8")
    (folder / "contextos.toml").write_text('witness = "off"\n', "utf-8")
    with contextos.open(folder, adapters=[bank.adapter], dev=True) as app:
        app.install(contextos.read_pack(pack, tools=[bank.adapter]), by=PUBLISHER.actor())
        yield GovernedBank(app, bank, answer)


def _people() -> dict[str, Any]:
    agent = {
        "agent_id": "agt_banker",
        "agent_urn": "agent:household/banker@1.0.0",
        "workload_identity": "spiffe://household/agents/banker",
        "role": "banker",
        "owner": "provider",
        "lifecycle": "active",
        "ceiling": "destructive",
        "scopes": [],
    }
    token = {"subject": "emma", "agent_id": "agt_banker", "scopes": [], "expires_at": 4102444800}
    user = {"user_id": "emma", "role": "holder", "roles": ["holder"], "scopes": [], "delegation_live": True}
    return {
        "users": [user],
        "agents": [agent],
        "delegations": {"tok_emma": token},
        "approvers": [_approver(ASKED, "cosigner"), _approver(PUBLISHER, "publisher", "policy_admin")],
    }


def _approver(person: Person, *roles: str) -> dict[str, Any]:
    granted = dict.fromkeys(roles, "bank")
    keys = [person.listed_key()]
    return {"approver_id": person.user_id, "roles": list(roles), "granted_by": granted, "keys": keys}
