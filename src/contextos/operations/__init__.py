"""What keeps runs going: the deployment that drives them, and what operators do to them.

A `Deployment` gives each run a journal and an environment and calls `runtime.loop.invoke_agent`. The other modules are
operator acts (approve, settle, cancel, restore) and the bookkeeping of drivers (leases, heartbeats, dead letters).
"""
