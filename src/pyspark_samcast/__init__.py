"""Found by PySpark itself, which imports every module called `pyspark_*` and registers its
`DefaultSource`: with Samcast installed, `format("samcast")` is there.
"""

from samcast.pipeline.source import SamcastSource as DefaultSource

__all__ = ["DefaultSource"]
