"""Orders per minute and product, from a group into Parquet files:

    samcast pipeline run examples/windowed_counts.py orders counts

Started again, it goes on where it stopped.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, window

group, target = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
orders = spark.readStream.format("samcast").option("group", group).load()
counts = (
    orders.withWatermark("sent", "1 minute")
    .groupBy(window("sent", "1 minute"), col("key").cast("string").alias("product"))
    .agg(count("*").alias("orders"))
)
(
    counts.writeStream.queryName("orders per minute")
    .format("parquet")
    .option("path", target)
    .option("checkpointLocation", f"{target}.checkpoint")
    .trigger(availableNow=True)
    .start()
)
