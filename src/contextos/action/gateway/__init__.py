"""The Tool Gateway: the guards that every governed call passes, in order, and the dispatch that follows."""
