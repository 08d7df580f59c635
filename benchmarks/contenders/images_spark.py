"""Spark, local: binary files, decoded in a Pandas UDF (simplejpeg, OpenCV), then `predict_batch_udf`.

It follows Spark's documentation. The function that makes the predictor loads the model once per Python worker, which
is kept. A tensor crosses as a flat array, here of bytes.
"""

import os
import shutil
import sys

from data import settings

if shutil.which("java") is None:
    sys.exit("not run: no Java")

import pandas as pd
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, pandas_udf
from pyspark.sql.types import ArrayType, ByteType, FloatType


def make_predict(folder: str):
    def load():
        import numpy as np
        from vision_model import VisionModel

        model = VisionModel(folder)
        return lambda images: model(images.view(np.uint8))

    return load


def make_decode(size: int):
    @pandas_udf(ArrayType(ByteType()))
    def decode_all(contents: pd.Series) -> pd.Series:
        import numpy as np
        from fast_decode import decode

        return contents.map(lambda encoded: np.ascontiguousarray(decode(encoded, size)).ravel().view(np.int8))

    return decode_all


if __name__ == "__main__":
    told, out = settings()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    size = told["size"]
    spark = (
        SparkSession.builder.master(f"local[{told['cpus']}]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "64")
        .config("spark.sql.files.maxPartitionBytes", str(16 * 2**20))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    embed = predict_batch_udf(
        make_predict(told["model"]),
        return_type=ArrayType(FloatType()),
        batch_size=64,
        input_tensor_shapes=[[size, size, 3]],
    )
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(told["images"])
    decoded = files.select("path", make_decode(size)(col("content")).alias("image"))
    decoded.select("path", embed(col("image")).alias("embedding")).write.mode("overwrite").parquet(str(out))
    spark.stop()
