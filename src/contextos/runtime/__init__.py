"""One run, from request to DecisionRecord. Start with `loop.invoke_agent`.

Only the runtime knows the order of the planes (policy, action, decision and so on), which do not import each other.
`wiring` gives each plane the ports that it is allowed to use and no others.
"""
