"""The journal of a run: recording and replay, the hash chain, signed heads, and folds of the entries."""
