"""Archives: the messages of a group as Parquet files, for as long as anybody wants them."""
