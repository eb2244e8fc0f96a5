"""Makes tools from functions: a decorated Python function becomes a capability of an adapter, with schemas from its
hints. A function from which they cannot be derived safely is refused when it is defined; the error says what to write.
"""
