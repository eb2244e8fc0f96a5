"""One task in, one answer out: what is wrong with the input is an answer, and many faults are counted."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from contextos.contracts.envelopes.identity import DirectoryLimits
from contextos.server.control import work
from tests.modelled import profile, rules
from tests.unit.packs.deploying import DEFINITIONS
from tests.unit.service.operations.test_packs import SHORT

TENANT = "tenant_acme_prod"
TASK: dict[str, Any] = {"tenant": TENANT, "definitions": [one.to_json() for one in DEFINITIONS], "beside": []}


def short(**changes: str) -> str:
    text = SHORT.replace("adp_orders.lookup", "deploy.ci_status")
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def test_a_short_form_is_expanded_with_the_bytes_that_its_author_signs() -> None:
    made = work.answered({**TASK, "work": "expand", "declaration": short()})
    assert made["pack"]["pack_meta"]["tenant"] == TENANT
    assert made["payload_type"].endswith("context-pack+json")


@pytest.mark.parametrize(
    ("text", "refused", "code"),
    [
        ("name: [", "malformed", "syntax"),
        ("\ud800", "malformed", "not_utf8"),
        ("x" * 1_100_000, "malformed", "too_large"),
        (short(tenant_acme_prod="tenant_other"), "invalid", "other_tenant"),
        (short(ci_status="nothing"), "invalid", "unknown_tool"),
    ],
    ids=["syntax", "a surrogate", "large", "another tenant", "another tool"],
)
def test_a_refused_text_is_an_answer(text: str, refused: str, code: str) -> None:
    answer = work.answered({**TASK, "work": "expand", "declaration": text})
    assert (answer["refused"], answer["problems"][0]["code"]) == (refused, code)
    linted = work.answered({**TASK, "work": "lint", "document": text, "known": False})
    assert linted["problems"][0]["code"] == code
    tested = work.answered({**TASK, "work": "test", "document": text, "sessions": []})
    assert tested["problems"][0]["code"] == code


def test_many_faults_are_counted_and_not_all_shown() -> None:
    people = ", ".join(f"a b {number}" for number in range(work.MAX_SHOWN_PROBLEMS + 5))
    fields = f"fields: [{people}]\n" + "".join(f"x{n}: 1\n" for n in range(work.MAX_SHOWN_PROBLEMS + 5))
    linted = work.answered({**TASK, "work": "lint", "document": short() + fields, "known": False})
    assert 0 < len(linted["problems"]) <= work.MAX_SHOWN_PROBLEMS


def test_the_process_reads_one_task_and_writes_its_answer() -> None:
    task = {**TASK, "work": "draft", "fields": {"name": "a.b", "version": "1.0.0", "who": ["a"], "approver": "lead"}}
    ran = subprocess.run(
        [sys.executable, "-I", "-m", work.__name__], input=json.dumps(task).encode(), capture_output=True, env={}
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert "deploy.rollback" in json.loads(ran.stdout)["declaration"]


def test_routing_rules_are_checked_with_the_profiles_that_are_published_and_those_beside_them() -> None:
    limits = DirectoryLimits().to_json()
    deployed = {"limits": limits, "runtime_version": "0.1.0", "now_s": 0, "logins": False, "unproved": False}
    here = {"roles": {}, "egress": [], "policies": [], "models": [profile(), rules()], "deployed": deployed}
    task = {**TASK, "work": "lint", "here": here}

    def problems(document: Any, *beside: Any, **of: Any) -> list[str]:
        texts = {"document": json.dumps(document), "beside": [json.dumps(one) for one in beside]}
        return [one["code"] for one in work.answered({**task, **texts, **of})["problems"]]

    other = profile("small", capabilities=[])
    assert problems(rules()) == problems(rules(), here=None) == []
    assert problems(rules(profiles=("model.small@1.0.0",))) == ["not_published"]
    assert problems(rules(profiles=("model.small@1.0.0",)), other) == ["never_eligible"]
    assert problems(profile(wire="openai", endpoint="https://models.example")) == ["egress_not_allowed"]
    assert problems(profile(), rules()) == ["not_beside"]


@pytest.mark.parametrize(
    ("text", "pointer", "code"),
    [
        (short(), "/beside/0", "not_beside"),
        (short(ci_status="nothing"), "/beside/0/tools/0", "unknown_tool"),
        ("name: [", "/beside/0", "syntax"),
    ],
)
def test_what_is_sent_beside_a_pack_is_used_or_refused_at_its_place(text: str, pointer: str, code: str) -> None:
    said = work.answered({**TASK, "work": "lint", "known": False, "document": short(), "beside": [text]})
    assert [(one["pointer"], one["code"]) for one in said["problems"]] == [(pointer, code)]
