"""The AI Gateway: every call of a model is routed, reserved, sent and settled here.

Modules: `router` (which profile is asked, and why not another).
"""
