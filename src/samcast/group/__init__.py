"""Atomic multicast: one file per role, and the concerns that have a state of their own."""
