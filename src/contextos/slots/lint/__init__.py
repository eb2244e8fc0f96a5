"""Lint of agent documents: whether an Open Agent Spec document declares its context slots correctly and wires them up.

Owns: reading a document (`documents`) and its flows as graphs (`components`); the declared slots (`oas`); the checks of
names (`names`), of selection nodes (`selection_node`) and the flows behind them (`selection_flow`), of consumers
(`consumers`), of the whole wiring (`wiring`), and of the agent's `package.json` (`package`).

Every planted fault is found under its own code: `tests/unit/slots/lint/test_wiring.py`. The work grows in proportion to
the document: `tests/unit/slots/lint/test_work.py`.
"""
