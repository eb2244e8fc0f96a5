"""An agent that exports customers. A script is in the place of a model: it counts first, and exports then."""

import contextos
from contextos.contracts.ports.gates import Done, Waiting


def export(app, session, columns, destination, region="eu", user="ana"):
    """Count, then export. Run it again when a person has answered: it goes on where it was."""
    gate = app.gate(session=session, user=user, token=f"tok_{user}", agent="agt_exports")
    what = {"region": region, "columns": columns}
    gate.call("data.count", what, call_id="count")
    answer = gate.call("data.export", {**what, "destination": destination}, call_id="export")
    if isinstance(answer, Waiting):
        return answer, None
    return answer, gate.finish("approved" if isinstance(answer, Done) else "denied").record


if __name__ == "__main__":
    from export import TOOLS

    with contextos.open(".", adapters=[TOOLS], dev=True) as running:
        print(export(running, "orders_of_the_eu", ["orders"], "warehouse.acme.example"))
