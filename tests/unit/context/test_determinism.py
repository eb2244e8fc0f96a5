"""The same input gives the same bytes: in any order, any process, any locale, any time zone, and after the journal."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.context.compiler import STAGES, compile_context
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.evidence import EvidenceItem
from tests.unit.context import samples

ROOT = Path(__file__).resolve().parents[3]
COMPILES = 20
ENVIRONMENTS = [
    {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "1", "LC_ALL": "C.UTF-8", "TZ": "Asia/Kolkata"},
    {"PYTHONHASHSEED": "2", "LC_ALL": "tr_TR.UTF-8", "TZ": "America/St_Johns"},
    {"PYTHONHASHSEED": "4294967295", "LC_ALL": "POSIX", "TZ": "Pacific/Apia"},
    {"PYTHONHASHSEED": "random", "LC_ALL": "hi_IN.UTF-8", "TZ": "Antarctica/Troll"},
]
PROGRAM = f"""
from contextos.context.compiler import compile_context
from contextos.contracts.encoding.jcs import content_address
from tests.unit.context import samples
for _ in range({COMPILES}):
    attachments = [samples.ATTACHMENT | {{"artifact_id": f"art_{{number}}"}} for number in range(4)]
    given = samples.refund(request=samples.request(attachments=attachments))
    print(content_address(compile_context(samples.as_input(given))))
"""


def compiled(**changes: Any) -> CompiledContext:
    return CompiledContext.model_validate(compile_context(samples.compile_input(**changes)))


def hashes(environment: dict[str, str]) -> list[str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": paths, "PATH": os.environ.get("PATH", "")} | environment,
    )
    return process.stdout.split()


@pytest.mark.requirement("C-DETERMINISTIC")
def test_a_hundred_compiles_over_hash_seeds_locales_and_time_zones_give_one_hash() -> None:
    found = [one for environment in ENVIRONMENTS for one in hashes(environment)]
    assert len(found) == 100
    assert len(set(found)) == 1


def shuffled(given: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    for name in ("evidence", "memory", "surface", "required_evidence"):
        given[name] = chance.sample(list(given[name]), len(given[name]))
    keys = list(given["decisions"])
    given["decisions"] = {key: given["decisions"][key] for key in chance.sample(keys, len(keys))}
    return given


@pytest.mark.requirement("C-DETERMINISTIC")
@given(st.integers(0, 2**32), st.integers(0, 400))
def test_the_order_of_unordered_inputs_never_matters(seed: int, evidence_tokens: int) -> None:
    names = ["twice", None, None, None, None]
    facts = [samples.fact(number % 7, hop=number % 3, name=names[number % 5]) for number in range(14)]
    ids = [f"adp_{number % 2}.cap_{number}" for number in range(6)]
    base = samples.refund(
        evidence=facts,
        memory=[samples.memory(number) for number in range(4)],
        required_evidence=[],
        surface=[samples.capability(one) for one in ids],
        decisions={one: samples.decision(one) for one in ids},
        run=samples.run(tokens={"evidence": evidence_tokens}),
    )
    assert compile_context(samples.as_input(shuffled(dict(base), random.Random(seed)))) == compile_context(
        samples.as_input(base)
    )


def test_the_same_fact_twice_is_one_block() -> None:
    once = [samples.fact(1), samples.fact(2)]
    assert compiled(evidence=once, required_evidence=[]) == compiled(evidence=[*once, *once], required_evidence=[])


@pytest.mark.requirement("C-DETERMINISTIC")
def test_inputs_that_were_in_the_journal_compile_to_the_same_bytes() -> None:
    value = {"é": 1.0, "a": [2.0, {"z": None, "b": 3}]}
    fresh = samples.refund(evidence=[samples.fact(1, value=value)], required_evidence=[])
    stored = [EvidenceItem.model_validate(loads(canonical(item.to_json()))) for item in fresh["evidence"]]
    before, after = (compile_context(samples.as_input(given)) for given in (fresh, fresh | {"evidence": stored}))
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert canonical(before) == canonical(after)


@pytest.mark.requirement("C-PURE")
def test_compiling_changes_no_input() -> None:
    given = samples.refund()
    before = copy.deepcopy(given)
    compile_context(samples.as_input(given))
    assert {name: value for name, value in given.items() if name != "estimator"} == {
        name: value for name, value in before.items() if name != "estimator"
    }


MORE_DECISIONS = samples.refund()["decisions"] | {"x.y": samples.decision("x.y", must_escalate=["R"])}
DRIFTS: list[tuple[str, dict[str, Any]]] = [
    ("intent_classification", {"template": samples.template(version="1.0.1")}),
    ("policy_resolution", {"decisions": MORE_DECISIONS}),
    ("tool_surfacing", {"surface": samples.refund()["surface"][:2]}),
    ("evidence_retrieval", {"evidence": samples.refund()["evidence"][:4]}),
    ("memory_recall", {"memory": []}),
    ("token_budget_allocation", {"run": samples.run(tokens={"memory": 1499})}),
]


@pytest.mark.requirement("C-STAGE-DIGEST")
@pytest.mark.parametrize(("stage", "changes"), DRIFTS, ids=[name for name, _ in DRIFTS])
def test_the_first_stage_digest_that_differs_names_the_stage_that_drifted(stage: str, changes: dict[str, Any]) -> None:
    before, after = compiled().context_ledger.stage_digests, compiled(**changes).context_ledger.stage_digests
    assert before is not None
    assert after is not None
    assert next(name for name, _ in STAGES if before[name] != after[name]) == stage
