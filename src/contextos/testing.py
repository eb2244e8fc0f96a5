"""For tests of packs and tools: a deployment in memory, a clock that a test moves, and people who answer with keys.

    with in_memory(packs=[pack], adapters=[tools], directory=people, facts=facts) as app:
        view = app.deployment.invoke(request)
        view = app.call(Person("lead").answer, app, view)

It is the real runtime: only the ports are other ones, and every record names them (`unsafe_…`). Nothing is written to a
disk. It works with `async with` as well, and then without `app.call`.
"""

from contextos.workspace.in_memory import TEST_OPERATOR, InMemory, MemoryDirectory, MovableClock, Person, in_memory

__all__ = ["TEST_OPERATOR", "InMemory", "MemoryDirectory", "MovableClock", "Person", "in_memory"]
