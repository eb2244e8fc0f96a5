"""The AI Gateway: every call of a model is routed, reserved, sent and settled here.

Modules: `gateway` (the calls of one run), `router` (which profile is asked, and why not another), `prices` (what a call
costs), `sending` (the calls of one process), and `foreign_provider` (what a provider answers becomes a reply).
"""
