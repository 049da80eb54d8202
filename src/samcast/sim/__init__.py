"""A deterministic simulator: whole clusters in one thread, virtual time, one seeded source of
chance.
"""
