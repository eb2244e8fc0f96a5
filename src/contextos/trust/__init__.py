"""The Trust plane: what makes a run governable."""
