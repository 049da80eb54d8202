"""Spark through PySpark: groups as sources of batch and streaming queries."""
