"""Lint of agent documents: how an Open Agent Spec document declares and wires its context slots."""
