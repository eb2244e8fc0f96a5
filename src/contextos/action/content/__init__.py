"""Find where a value was seen: in texts that a run has seen, in any of their forms, or in what earlier runs wrote."""
