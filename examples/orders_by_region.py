"""Orders per minute and region, kept current in a replicated table that every member reads:

    samcast pipeline run examples/orders_by_region.py

Orders are messages of the group `orders`, each with its product as key. Which region a product
belongs to is in the table `regions`. The counts go to the table `orders_per_minute`. Started again,
it goes on where it stopped, and no order counts twice.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, concat_ws, count, date_format, lit, window

spark = SparkSession.builder.getOrCreate()


def text(name: str):
    return col(name).cast("string")


def write(counts: DataFrame, batch: int) -> None:
    """What has changed in this batch, once: the name makes it so."""
    minute = date_format("window.start", "yyyy-MM-dd HH:mm")
    rows = counts.select(
        concat_ws(" ", minute, "region").alias("key"), text("orders").alias("value")
    )
    rows.write.format("samcast").mode("append").option("table", "orders_per_minute").option(
        "create", "true"
    ).option("name", "orders by region").save()


regions = spark.read.format("samcast").option("table", "regions").load()
regions = regions.select(text("key").alias("product"), text("value").alias("region"))
orders = spark.readStream.format("samcast").option("group", "orders").load()
counts = (
    orders.withWatermark("sent", "1 minute")
    .select("sent", text("key").alias("product"))
    .join(regions, "product", "left")
    .groupBy(window("sent", "1 minute"), coalesce("region", lit("nowhere")).alias("region"))
    .agg(count("*").alias("orders"))
)
(
    counts.writeStream.queryName("orders by region")
    .outputMode("update")
    .foreachBatch(write)
    .option("checkpointLocation", "orders_by_region.checkpoint")
    .trigger(availableNow=True)
    .start()
)
