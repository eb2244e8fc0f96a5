"""Lint of governed artifacts: every edge of a pack's binding graph that does not hold, each with a remedy."""
