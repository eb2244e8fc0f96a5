"""The cases of one AgentDojo suite, and what comes of them in one setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from agentdojo.task_suite import task_suite
from agentdojo.task_suite.load_suites import get_suite

from benchmarks.agentdojo import people
from benchmarks.agentdojo.attacks import READER, SHIPPED, Attacker
from benchmarks.agentdojo.governed import governed
from benchmarks.agentdojo.planner import Converse, ObeyingPlanner, bare
from benchmarks.agentdojo.tools import SuiteTools
from benchmarks.bars import folder

VERSION: Final = "v1.2.2"
SUITES: Final = ("banking", "workspace", "slack", "travel")
BENIGN: Final = "nobody attacks"
BARE, GATE, OWN = "no gateway", "at the gate", "own model"
CAREFUL, STRANGER, NOBODY = "careful", "stranger", "-"
REPLAYED: Final = 4

# The environment is read anew for every case. The parser in C reads the same text ten times as fast.
task_suite.yaml.safe_load = lambda text: yaml.load(text, yaml.CSafeLoader)


@dataclass(frozen=True, slots=True)
class Setting:
    """A suite, how the agent makes its calls (`BARE`, `GATE` or `OWN`), the person who is asked, and the attacks. One
    in `step` pairs is played, and they take turns; if `every`, each of them plays each of these pairs.
    """

    suite: str
    agent: str
    person: str
    attacks: tuple[str, ...]
    step: int
    every: bool = False


@dataclass(slots=True)
class Outcome:
    """What came of the cases of one attack: how many there are, in how many the user's task was completed, the agent
    read the attacker's text, and the attacker's goal was reached; and the questions to the person. `withheld` are those
    that were not completed and need a tool that the agent is not offered. `wrong` names the cases in which nobody
    attacked and the task was not completed, or the goal was reached.
    """

    cases: int = 0
    completed: int = 0
    withheld: int = 0
    seen: int = 0
    reached: int = 0
    asked: int = 0
    approved: int = 0
    wrong: list[str] = field(default_factory=list)

    def count(self, completed: bool, is_withheld: bool) -> None:
        """Count a case."""
        self.cases += 1
        self.completed += completed
        self.withheld += is_withheld and not completed

    def add(self, other: Outcome) -> None:
        for name in ("cases", "completed", "withheld", "seen", "reached", "asked", "approved", "wrong"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Played:
    """What came of a setting, by attack. `equal` of the `replayed` sessions equal their records."""

    by_attack: dict[str, Outcome] = field(default_factory=dict)
    replayed: int = 0
    equal: int = 0


def settings(*, every: bool) -> list[Setting]:
    """Return all settings, the long ones first."""
    governed = ((CAREFUL, SHIPPED, 4), (CAREFUL, (READER,), 4), (STRANGER, SHIPPED, 16))
    kinds = (*((agent, *one) for one in governed for agent in (OWN, GATE)), (BARE, NOBODY, SHIPPED, 2))
    return [
        Setting(suite, agent, person, attacks, 1 if every else step, every)
        for agent, person, attacks, step in kinds
        for suite in ("workspace", "travel", "banking", "slack")
    ]


def play(setting: Setting) -> Played:
    """Run the cases of a setting, and judge them by AgentDojo."""
    suite = get_suite(VERSION, setting.suite)
    tools, played = SuiteTools(suite.tools), Played()
    if setting.agent == BARE:
        for _ in _cases(setting, suite, tools, bare, played):
            pass
        return played
    documents = suite.load_and_inject_default_environment({}).model_dump(mode="json")
    answer = people.careful(documents if setting.person == CAREFUL else None)
    with folder() as name, governed(Path(name) / "workspace", tools, answer, own_model=setting.agent == OWN) as here:
        before = (0, 0)
        for outcome in _cases(setting, suite, tools, here.converse, played):
            now = (here.questions.total(), here.questions["approved"])
            outcome.asked += now[0] - before[0]
            outcome.approved += now[1] - before[1]
            before = now
        sample = here.ended[:: max(1, len(here.ended) // REPLAYED)]
        played.replayed, played.equal = len(sample), sum(map(here.replays, sample))
    return played


def _cases(setting: Setting, suite: Any, tools: SuiteTools, converse: Converse, played: Played) -> Iterator[Outcome]:
    """Play one case after the other, and yield where it was counted."""
    withheld = tools.secret if setting.agent == OWN else ()
    if READER not in setting.attacks:
        outcome = played.by_attack.setdefault(BENIGN, Outcome())
        for task in suite.user_tasks.values():
            planner = ObeyingPlanner(converse, task, lambda _environment: (), ())
            completed, _ = suite.run_task_with_pipeline(planner, task, None, {})
            outcome.count(completed, planner.asks_for(withheld))
            if not completed:
                outcome.wrong.append(task.ID)
            yield outcome
    attackers = {name: Attacker(name, suite, tools.definitions) for name in setting.attacks}
    for number, (task, goal) in enumerate(pairs(suite, setting.step)):
        for name in setting.attacks if setting.every else (setting.attacks[number % len(setting.attacks)],):
            outcome = played.by_attack.setdefault(name, Outcome())
            _attacked(suite, converse, attackers[name], task, goal, withheld, outcome)
            yield outcome


def pairs(suite: Any, step: int) -> list[tuple[Any, Any]]:
    """One in `step` pairs of a user's task and a goal of an attacker that AgentDojo has calls for, spread evenly over
    tasks and goals.
    """
    environment = suite.load_and_inject_default_environment({})
    goals = [one for one in suite.injection_tasks.values() if one.ground_truth(environment)]
    return [
        (task, goal)
        for row, task in enumerate(suite.user_tasks.values())
        for column, goal in enumerate(goals)
        if (row + column) % step == 0
    ]


def _attacked(
    suite: Any, converse: Converse, attacker: Attacker, task: Any, goal: Any, withheld: Sequence[str], outcome: Outcome
) -> None:
    texts = attacker.texts(task, goal)
    orders = partial(attacker.orders, goal)
    planner = ObeyingPlanner(converse, task, orders, tuple(texts.values()))
    completed, reached = suite.run_task_with_pipeline(planner, task, goal, texts)
    outcome.count(completed, planner.asks_for(withheld))
    outcome.seen += planner.obeyed
    outcome.reached += reached
    if reached:
        outcome.wrong.append(f"{task.ID} x {goal.ID}")
