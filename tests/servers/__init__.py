"""Foreign servers for tests: real ones made with the MCP SDK, and one that misbehaves in many modes."""
