"""An agent with slots depends on the selection agent, one without does not, and both files name one package."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.slots.lint.package import lint_package
from contextos.slots.lint.selection_node import SELECTION_AGENT
from tests.slots import slot

DOCUMENT = {"metadata": {"cinatra": {"packageName": "@acme/agent", "contextSlots": [slot().to_json()]}}}
DEPENDS = {"name": "@acme/agent", "cinatra": {"agentDependencies": {SELECTION_AGENT: "^1.0.0"}}}


@pytest.mark.parametrize(
    ("document", "package", "codes"),
    [
        (DOCUMENT, DEPENDS, []),
        ({}, {"name": "@acme/agent"}, []),
        (DOCUMENT, [], ["not_an_object"]),
        (DOCUMENT, {**DEPENDS, "name": "@acme/other"}, ["package_name_differs"]),
        (DOCUMENT, {"cinatra": {"agentDependencies": []}}, ["not_an_object"]),
        (DOCUMENT, {"cinatra": {"agentDependencies": {SELECTION_AGENT: " "}}}, ["missing_dependency"]),
        (DOCUMENT, {"cinatra": "x"}, ["missing_dependency"]),
        ({}, DEPENDS, ["transitive_dependency"]),
    ],
)
def test_each_fault_of_a_package_has_its_code(document: Any, package: Any, codes: list[str]) -> None:
    assert [one.code for one in lint_package(document, package)] == codes
