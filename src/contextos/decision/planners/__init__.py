"""Planners: each proposes a typed plan from a compiled context and can execute nothing."""
