"""Sessions: what a user does without a pause of ten minutes, from one group into another:

    samcast pipeline run examples/sessions.py

Clicks are messages of the group `clicks`, each with its user as key. Spark keeps the sessions that
are still open as state, in the checkpoint folder. One that has ended is a message of the group
`sessions`, once: key and body say whose it was, how long and how many clicks.
"""

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, session_window, struct, to_json

spark = SparkSession.builder.getOrCreate()
clicks = spark.readStream.format("samcast").option("group", "clicks").load()
sessions = (
    clicks.withWatermark("sent", "10 minutes")
    .groupBy(session_window("sent", "10 minutes").alias("time"), col("key"))
    .agg(count("*").alias("clicks"))
    .select(
        "key",
        to_json(struct("time.start", "time.end", "clicks")).alias("body"),
    )
)
(
    sessions.writeStream.queryName("sessions")
    .format("samcast")
    .option("group", "sessions")
    .option("create", "true")
    .option("checkpointLocation", "sessions.checkpoint")
    .trigger(availableNow=True)
    .start()
)
