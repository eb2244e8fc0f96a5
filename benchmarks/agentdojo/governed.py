"""The tools of a suite under one pack, in a workspace on SQLite.

Each conversation is a session of the gate, or a run whose own model chooses the calls.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from agentdojo.functions_runtime import FunctionCall

import contextos
from benchmarks.agentdojo.model import PROFILE, ROUTING, ObeyingModel, chosen_by_model
from benchmarks.agentdojo.people import Answer, Question
from benchmarks.agentdojo.planner import Moves, make_calls
from benchmarks.agentdojo.tools import SuiteTools
from contextos.contracts.ports.gates import CallAnswer, Done, Waiting
from contextos.control.lint.money import EACH_IS_ASKED, money_of
from contextos.deployment.queries.run_view import RunView
from contextos.testing import Person
from contextos.workspace import make_keys

TENANT: Final = "household"
ASKED: Final = Person("liam")
PUBLISHER: Final = Person("olga")
PACK: Final[Mapping[str, Any]] = {
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
AGENT: Final = {"agent_id": "agt_assistant", "workload_identity": "spiffe://household/agents/assistant"}


@dataclass(slots=True)
class GovernedSuite:
    """A deployment with one pack. `answer` is the person who is asked now, and `model` its own model; without one, an
    agent outside chooses the calls. `ended` are the runs that have ended, and `questions` counts the answers that were
    given to questions.
    """

    app: Any
    tools: SuiteTools
    answer: Answer
    model: ObeyingModel | None
    ended: list[str] = field(default_factory=list)
    questions: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=count)

    def converse(self, request: str, _runtime: Any, environment: Any, moves: Moves) -> None:
        """Play a conversation about a request of the user."""
        self.tools.environment = environment
        name = f"conversation-{next(self._numbers)}"
        if self.model is None:
            gate = self.app.gate(session=name, user="emma", token="tok_emma", agent="agt_assistant", message=request)
            _AtTheGate(self, gate, request).converse(moves)
        else:
            self.model.begin(moves)
            self._run(name, request)
            # The run can end before its model is done.
            make_calls(moves, lambda _call: None)

    def _run(self, name: str, request: str) -> None:
        view = self.app.deployment.invoke(_request(name, request))
        while view.state == "waiting":
            self.ask_person(request, view)
            view = self.app.deployment.view(TENANT, view.run_id)
        self.ended.append(view.run_id)

    def ask_person(self, request: str, view: RunView) -> bool:
        """Ask the person the question that a run waits with, and return whether they approved."""
        asked = self.app.approvals.get(TENANT, view.run_id)
        args = {one.name: one.value for one in asked.args if one.value is not None}
        secrets = {one.name: one.value[0] == "request" for one in asked.secrets}
        shown = {name: value for name, value in args.items() if name not in secrets}
        tool = asked.capability_id.partition(".")[2]
        verdict = self.answer(Question(request, tool, shown, tuple(secrets.values())))
        said = "approved" if verdict else "denied"
        self.questions[said] += 1
        self.app.call(ASKED.answer, self.app, view, said)
        return verdict

    def replays(self, run_id: str) -> bool:
        """Whether a run replays to the record that it left."""
        replayed = self.app.call(contextos.replay, self.app.deployment, TENANT, run_id)
        view = self.app.deployment.view(TENANT, run_id)
        return bool(replayed.record_hash == view.record["record_hash"])


@dataclass(slots=True)
class _AtTheGate:
    """One session. A call that waits for a person is made again once the person has answered."""

    here: GovernedSuite
    gate: Any
    request: str
    over: bool = False
    wrote: bool = False
    _numbers: Iterator[int] = field(default_factory=count)

    def converse(self, moves: Moves) -> None:
        make_calls(moves, self._make)
        if not self.over:
            self.gate.finish("approved" if self.wrote else "denied")
            self.here.ended.append(self.gate.run_id)

    def _make(self, call: FunctionCall) -> Any:
        if self.over:
            return None
        call_id = f"call-{next(self._numbers)}"
        said = self._ask(call, call_id)
        if isinstance(said, Waiting) and self.here.ask_person(self.request, self.gate.view()):
            said = self._ask(call, call_id)
        self.over = self.over or bool(getattr(said, "ended", False))
        if not isinstance(said, Done) or said.output is None:
            return None
        self.wrote = self.wrote or call.function not in self.here.tools.reads
        return said.output

    def _ask(self, call: FunctionCall, call_id: str) -> CallAnswer:
        said: CallAnswer = self.gate.call(f"tools.{call.function}", dict(call.args), call_id=call_id)
        return said


@contextmanager
def governed(folder: Path, tools: SuiteTools, answer: Answer, *, own_model: bool) -> Iterator[GovernedSuite]:
    """Open a new workspace in `folder`, with `PACK` in force. Nobody shows a model a secret, so it is not offered the
    tools that take one.
    """
    (folder / "packs").mkdir(parents=True)
    make_keys(folder / "keys")
    (folder / "directory.json").write_text(json.dumps({TENANT: _people()}), "utf-8")
    (folder / "contextos.toml").write_text('witness = "off"\n', "utf-8")
    moving = [f"tools.{one.name}" for one in tools.adapter.describe().capabilities if money_of(one)]
    permissions = {name: {"without_sum": EACH_IS_ASKED} for name in moving}
    offered = [one for one in tools.definitions if not own_model or one not in tools.secret]
    pack = {**PACK, "tools": [f"tools.{one}" for one in offered], "permissions": permissions}
    model = ObeyingModel(tools.reads) if own_model else None
    documents = (pack | chosen_by_model(PACK["name"]), PROFILE, ROUTING) if own_model else (pack,)
    for number, document in enumerate(documents):
        (folder / "packs" / f"{number}.yaml").write_text(json.dumps({**document, "tenant": TENANT}), "utf-8")
    with contextos.open(folder, adapters=[tools.adapter], models=model, dev=True) as app:
        app.initialise(TENANT, by=PUBLISHER.actor())
        yield GovernedSuite(app, tools, answer, model)


def _request(name: str, message: str) -> dict[str, Any]:
    delegation = {"auth_type": "oauth2", "scopes": [], "subject": "emma", "token_ref": "tok_emma"}
    return {
        "request_id": name,
        "tenant_id": TENANT,
        "user": {"user_id": "emma", "delegation": delegation},
        "agent": AGENT,
        "context_pack_refs": [f"{PACK['name']}@{PACK['version']}"],
        "input": {"intent": PACK["name"], "message": message, "context": {}},
        "mode": "batch",
        "runtime": {},
        "trace": {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331", "trace_flags": "01"},
    }


def _people() -> dict[str, Any]:
    agent = {
        **AGENT,
        "agent_urn": "agent:household/assistant@1.0.0",
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
