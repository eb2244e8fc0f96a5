"""The policy engine: bundles compile to a `PolicySet`, which answers every enforcement point as a pure function."""
