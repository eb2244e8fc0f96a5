"""The AI Gateway: every call of a model is routed, reserved, sent and settled here.

Modules: `gateway` (the calls of one run), `router` (which profile is asked, and why not another), `prices` (the cost of
a call), `sending` (the calls of one process), and `foreign_provider` (a provider's answer becomes a checked reply).
"""
