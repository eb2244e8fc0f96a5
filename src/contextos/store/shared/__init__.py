"""What every store shares: batch checks, graph validation, artifact rules and rows."""
