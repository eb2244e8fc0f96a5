"""An agent that rolls a service back. A script is in the place of a model and chooses one call after the other."""

import sys

import contextos
from contextos.contracts.ports.gates import Done, Waiting


def roll_back(app, session, service, env, user="ana"):
    """Look first, then roll back. Run it again when a person has answered: it goes on where it was."""
    gate = app.gate(session=session, user=user, token=f"tok_{user}", agent="agt_deploy")
    where = {"service": service, "env": env}
    gate.call("deploy.ci_status", {"service": service}, call_id="ci")
    gate.call("deploy.impact", where, call_id="impact")
    answer = gate.call("deploy.rollback", where, call_id="rollback")
    if isinstance(answer, Waiting):
        return answer, None
    return answer, gate.finish("approved" if isinstance(answer, Done) else "denied").record


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5:
        sys.exit("usage: python agent.py SESSION SERVICE ENV [USER]")
    with contextos.open(".") as running:
        said, record = roll_back(running, *sys.argv[1:])
        if record is None:
            print(f"waiting: {said.question['gate_id']} asks the {said.question['required_role']}")
        else:
            print(f"{record['status']}, {record['outcome']}: {said.output if isinstance(said, Done) else said}")
