"""Identity: the run's own claim, compact JWS signatures, and the comparison of stated with known identity."""
