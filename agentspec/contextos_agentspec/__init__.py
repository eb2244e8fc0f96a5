"""Agents in Open Agent Spec: the lint of how they declare and wire their context slots, and their flows on WayFlow.

Owns: the agents in files and directories (`agents`); a document's flows as graphs (`components`); the checks of names
(`names`), of selection nodes (`selection_node`) and the flows behind them (`selection_flow`, `addresses`), of consumers
(`consumers`), of the whole wiring (`wiring`), and of the agent's `package.json` (`package`); the steps of the selection
agent for one run (`session`); flows on WayFlow (`wayflow`); and the selection agent itself (`selection_agent.json`).

Does not own: which slots a document declares (`contextos.context.slots.oas`), and what a selection pins
(`contextos.context.slots`).

Stable
------
- `contextos_agentspec.package`: lint of an agent's package
- `contextos_agentspec.wiring`: lint of the selection steps in an agent's document
- `contextos_agentspec.session`: context-slot selection step by step
- `contextos_agentspec.wayflow`: agents in Open Agent Spec on WayFlow (extra `wayflow`)

Invariants, with the tests that prove them:

- Every planted fault is found under its own code: `tests/agentspec/test_wiring.py`.
- The work grows in proportion to the document: `tests/agentspec/test_work.py`.
- A flow resumes only from a state of its own document, and a selection takes only a person's answer:
  `tests/agentspec/test_forged.py`.
"""
