"""No framework is imported unless a module of `contextos.frameworks` that needs it is."""

from __future__ import annotations

import subprocess
import sys

FRAMEWORKS = ("pydantic_ai", "langchain_core", "langgraph", "agents", "openai", "anthropic", "httpx")


def test_no_framework_is_imported_unless_it_is_used() -> None:
    code = (
        "import sys, contextos, contextos.frameworks.wrapping\n"
        "import contextos.frameworks.offers, contextos.frameworks.loops\n"
        "contextos.open, contextos.pack, contextos.toolset\n"
        f"print([one for one in {FRAMEWORKS!r} if one in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True).stdout
    assert said.strip() == "[]"
