"""The sixteen components of the specification each have a section, and it says what the code says today."""

from __future__ import annotations

import tomllib

from tests.docs.components import PAGE, TABLE, page

INVENTORY = {
    "Conversation Manager",
    "Intent / Risk Classifier",
    "Intent-Task Catalog",
    "Context Pack Compiler",
    "Policy Engine",
    "Orchestrator",
    "AI Gateway / LLM Router",
    "Tool Gateway pattern",
    "Tool Manager",
    "Decision Catalog",
    "Knowledge Substrate",
    "Memory Fabric",
    "Identity Layer",
    "Evaluation Engine",
    "Observability",
    "Admin Console",
}
"""Reference Architecture, Appendix A."""


def test_the_page_is_what_code_and_requirements_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m tests.docs.components`"


def test_every_component_of_the_specification_has_a_section() -> None:
    assert tomllib.loads(TABLE.read_text("utf-8")).keys() == INVENTORY
