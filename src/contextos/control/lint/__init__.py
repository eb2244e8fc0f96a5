"""Lint of packs: checks every reference in a pack and reports each problem with its pointer and its remedy."""
