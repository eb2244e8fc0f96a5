"""Function adapters: plain Python functions as capabilities, the threads they run in, and how their code is loaded.

Owns the translation of everything that foreign code does into the promises of the `Adapter` port. Does not own what the
functions do. Tests: `tests/unit/adapters/function`.
"""
