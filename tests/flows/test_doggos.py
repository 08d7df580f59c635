"""The shipped job of Ray's tutorial data, with a small CLIP and without a GPU, on an S3 server with that bucket."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, CLIPModel

from tests.flows.conftest import RunJob, assert_settled, published
from tests.tasks.infer.test_query import small_clip

JOB = Path(__file__).parents[2] / "deployments/jobs/doggos.yaml"


@pytest.mark.slow
def test_images_of_a_public_bucket_are_embedded_with_the_folder_as_label(
    run_job: RunJob, s3: Any, tmp_path: Path
) -> None:
    from flows.batch_inference import batch_inference

    small_clip(tmp_path / "clip")
    s3.create_bucket(Bucket="doggos-dataset")
    noise = np.random.default_rng(0).integers(0, 256, (6, 6, 8, 3), dtype=np.uint8)
    for place, pixels in enumerate(noise):
        file = tmp_path / f"{place}.jpg"
        Image.fromarray(pixels).resize((300, 224)).save(file)
        key = f"train/{'poodle' if place % 2 else 'chow'}/{place}.jpg"
        s3.upload_file(str(file), "doggos-dataset", key, ExtraArgs={"ACL": "public-read"})
    s3.put_bucket_acl(Bucket="doggos-dataset", ACL="public-read")
    settings = [f"inference.0.model={tmp_path / 'clip'}", "inference.0.num_gpus=0", f"sink.path={tmp_path / 'out'}"]
    receipt = batch_inference("", job=str(JOB), settings=settings)
    assert_settled(receipt, written=6)
    table = published(receipt, tmp_path / "out").sort_by("row_id")
    assert table["row_id"].to_pylist() == [f"{'poodle' if n % 2 else 'chow'}/{n}.jpg" for n in (0, 2, 4, 1, 3, 5)]
    assert table["label"].to_pylist() == ["chow"] * 3 + ["poodle"] * 3
    assert table["uri"][0].as_py() == "s3://doggos-dataset/train/chow/0.jpg"
    network, processor = (
        CLIPModel.from_pretrained(tmp_path / "clip").eval(),
        AutoImageProcessor.from_pretrained(tmp_path / "clip"),
    )
    for name, embedding in zip(table["row_id"].to_pylist(), table["embedding"].to_pylist(), strict=True):
        image = Image.open(tmp_path / name.split("/")[1]).crop((38, 0, 262, 224))
        with torch.no_grad():
            expected = network.get_image_features(**processor(image, return_tensors="pt")).pooler_output[0]
        np.testing.assert_allclose(embedding, expected.numpy(), atol=1e-4)
