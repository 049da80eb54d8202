"""Checkpoints as files: what folds come to, in columns that other tools can open."""
