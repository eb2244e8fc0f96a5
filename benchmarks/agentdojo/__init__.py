"""AgentDojo's banking suite behind the gateway."""
