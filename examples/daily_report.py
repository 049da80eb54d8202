"""A report of a day, as a page with a chart: how many orders came in each hour.

samcast pipeline run examples/daily_report.py orders 2026-11-16 report.html
"""

import sys
from html import escape
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, hour, to_date

group, day, page = sys.argv[1:]
spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
orders = spark.read.format("samcast").option("group", group).load()
of_day = orders.where(to_date("sent") == day)
hours = of_day.groupBy(hour("sent").alias("hour")).agg(count("*").alias("orders")).collect()
best = of_day.groupBy(col("key").cast("string").alias("product")).count()
best = best.orderBy(col("count").desc(), "product").limit(10).collect()

counts = {row.hour: row.orders for row in hours}
most = max(counts.values(), default=1)
bars = "".join(
    f'<rect x="{20 + 24 * at}" y="{220 - 200 * counts.get(at, 0) / most:.0f}" width="18"'
    f' height="{200 * counts.get(at, 0) / most:.0f}" fill="#3b6ea5"><title>{at}:00:'
    f" {counts.get(at, 0)}</title></rect>"
    f'<text x="{22 + 24 * at}" y="236" font-size="11">{at}</text>'
    for at in range(24)
)
rows = "".join(
    f"<tr><td>{escape(row['product'] or '-')}</td><td>{row['count']}</td></tr>" for row in best
)
Path(page).write_text(
    f"<!doctype html><title>{day}</title><h1>{sum(counts.values())} orders on {day}</h1>"
    f'<svg width="610" height="245" font-family="sans-serif">{bars}</svg>'
    f"<table><tr><th>product</th><th>orders</th></tr>{rows}</table>"
)
print(f"{page}: {sum(counts.values())} orders on {day}")
