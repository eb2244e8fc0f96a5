"""AgentDojo's four suites behind the gateway."""
