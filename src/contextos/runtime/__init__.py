"""One run, from request to DecisionRecord. Start with `loop.invoke_agent`.

The runtime alone knows the order of the planes; planes do not import each other. `wiring` hands each plane the ports
it may use and nothing more.
"""
