"""The cases of AgentDojo's banking suite, and what comes of them in one setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agentdojo.task_suite.load_suites import get_suite

from benchmarks.agentdojo import people
from benchmarks.agentdojo.attacks import DISGUISES, IN_PIECES, Disguise, injections_of
from benchmarks.agentdojo.governed import governed
from benchmarks.agentdojo.planner import BareTools, ObeyingPlanner, OpenTools
from benchmarks.agentdojo.tools import Bank
from benchmarks.bars import folder

VERSION: Final = "v1.2.2"
REPLAYED: Final = 20
"""About how many sessions of a row are replayed, evenly spread over it."""

ATTACKS: Final[Mapping[str, tuple[str, tuple[Disguise, ...]]]] = {
    "important_instructions": ("important_instructions", (str,)),
    "direct": ("direct", (str,)),
    "in disguise": ("direct", tuple(DISGUISES.values())),
    "in pieces": ("direct", tuple(IN_PIECES.values())),
}
"""By name, AgentDojo's attack and the disguises, which the pairs take in turn: each attacker's goal gets every one."""

PEOPLE: Final[Mapping[str, Callable[[Mapping[str, Any]], people.Answer]]] = {
    "careful": people.careful,
    "denies all": lambda _documents: people.denies_all,
    "never answers": lambda _documents: people.never_answers,
    "approves all": lambda _documents: people.approves_all,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A setting: the attack, the pack in force (None: no gateway), and the person who is asked."""

    attack: str
    pack: str | None = None
    person: str = "careful"


@dataclass(slots=True)
class Outcome:
    """What came of all cases of a row, in numbers. `seen` is how many pairs had the agent read the attacker's text."""

    tasks: int = 0
    benign: int = 0
    pairs: int = 0
    seen: int = 0
    completed: int = 0
    reached: int = 0
    questions_benign: int = 0
    questions: int = 0
    approved: int = 0
    replayed: int = 0
    replayed_equal: int = 0
    reached_by: list[str] = field(default_factory=list)


def play(row: Row) -> Outcome:
    """Run every user's task alone, and every pair of a user's task and an attacker's, and judge them by AgentDojo."""
    suite = get_suite(VERSION, "banking")
    outcome = Outcome()
    if row.pack is None:
        _play_benign(suite, BareTools, outcome)
        _play_attacked(suite, row.attack, BareTools, outcome)
        return outcome
    documents = suite.load_and_inject_default_environment({}).model_dump()
    answer = PEOPLE[row.person](documents)
    pack = Path(__file__).parent / row.pack
    with folder() as name, governed(Path(name) / "workspace", pack, Bank(suite.tools), answer) as here:
        _play_benign(suite, here.open, outcome)
        outcome.questions_benign = here.questions.total()
        _play_attacked(suite, row.attack, here.open, outcome)
        outcome.questions = here.questions.total() - outcome.questions_benign
        outcome.approved = here.questions["approved"]
        sample = here.ended[:: max(1, len(here.ended) // REPLAYED)]
        outcome.replayed = len(sample)
        outcome.replayed_equal = sum(map(here.replays, sample))
    return outcome


def _play_benign(suite: Any, open_tools: OpenTools, outcome: Outcome) -> None:
    for task in suite.user_tasks.values():
        planner = ObeyingPlanner(open_tools, task, None, ())
        completed, _ = suite.run_task_with_pipeline(planner, task, None, {})
        outcome.tasks += 1
        outcome.benign += completed


def _play_attacked(suite: Any, attack: str, open_tools: OpenTools, outcome: Outcome) -> None:
    name, disguises = ATTACKS[attack]
    for task in suite.user_tasks.values():
        for attacker in suite.injection_tasks.values():
            disguise = disguises[outcome.pairs % len(disguises)]
            texts = injections_of(name, suite, task, attacker, disguise)
            planner = ObeyingPlanner(open_tools, task, attacker, tuple(texts.values()))
            completed, reached = suite.run_task_with_pipeline(planner, task, attacker, texts)
            outcome.pairs += 1
            outcome.seen += planner.obeyed
            outcome.completed += completed
            outcome.reached += reached
            if reached:
                outcome.reached_by.append(f"{task.ID} x {attacker.ID}")
