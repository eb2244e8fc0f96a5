"""Tools from functions: a decorated Python function becomes a capability of an adapter, with schemas from its hints.

Refuses, when the function is defined, whatever cannot be derived safely, and says what to write.
"""
