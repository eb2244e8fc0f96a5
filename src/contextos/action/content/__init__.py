"""Where a value was seen: the texts that a run has seen, their forms, and what earlier runs wrote."""
