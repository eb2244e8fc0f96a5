"""Commands of operators: worker, dead letters, circuit breakers, migrate, restored."""
