"""Function adapters: the `Adapter` port over plain Python functions."""
