"""Approvals and settlements: a person's signed answer about one call, bound to its exact arguments and evidence."""
