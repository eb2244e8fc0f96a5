"""Lint of packs: checks every edge of the binding graph and reports each problem with its pointer and its remedy."""
