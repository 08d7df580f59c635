"""Make small models with random weights for the pages in docs/how-to/, each in its library's format.

clip/ resnet/ vit/ sentiment/ entities/ writer/ whisper/ yolos/
                                         folders as `save_pretrained` writes them
tables/linear.pt2  tables/linear.onnx  tables/dense.keras  tables/species.joblib
                                         one model of four numbers from each library
"""

import os
from pathlib import Path
from typing import Any

from workload_data import MEASURES, SHAPES

TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
VISION = {**TOWER, "image_size": 64, "patch_size": 16}
SPREAD = 0.5  # of weights: with transformers' default, such small models answer nearly the same for every text
# The vocabulary of the small tokenizers.
WORDS = [
    *("a", "an", "the", "this", "that", "is", "are", "was", "as", "of", "to", "in", "on", "for", "with", "and", "or"),
    *("not", "no", "never", "again", "what", "lovely", "mess", "usual", "red", "blue", "circle", "square", "triangle"),
    *("file", "string", "object", "class", "function", "return", "value", "list", "number", "true", "false", "if"),
]


def clip(folder: Path) -> None:
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

    text = {**TOWER, "vocab_size": len(WORDS) + 4, "max_position_embeddings": 32, "bos_token_id": 2, "eos_token_id": 3}
    _seeded()
    CLIPModel(CLIPConfig(text_config=text, vision_config=VISION, projection_dim=32)).save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}).save_pretrained(folder)
    _tokenizer(32).save_pretrained(folder)


def resnet(folder: Path) -> None:
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "bottleneck"}
    _seeded()
    ResNetForImageClassification(ResNetConfig(**sizes, **_labels(SHAPES))).save_pretrained(folder)
    _image_processor().save_pretrained(folder)


def vit(folder: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification

    _seeded()
    ViTForImageClassification(ViTConfig(**VISION, **_labels(SHAPES))).save_pretrained(folder)
    _image_processor().save_pretrained(folder)


def sentiment(folder: Path) -> None:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    sizes = {"dim": 32, "hidden_dim": 64, "n_heads": 4, "n_layers": 2, "max_position_embeddings": 64}
    names = _labels(("NEGATIVE", "POSITIVE"))
    config = DistilBertConfig(**sizes, **names, vocab_size=len(WORDS) + 4, initializer_range=SPREAD)
    _seeded()
    DistilBertForSequenceClassification(config).save_pretrained(folder)
    _tokenizer(64).save_pretrained(folder)


def entities(folder: Path) -> None:
    from transformers import DistilBertConfig, DistilBertForTokenClassification

    sizes = {"dim": 32, "hidden_dim": 64, "n_heads": 4, "n_layers": 2, "max_position_embeddings": 64}
    names = _labels(("O", "B-THING", "I-THING"))
    config = DistilBertConfig(**sizes, **names, vocab_size=len(WORDS) + 4, initializer_range=SPREAD)
    _seeded()
    DistilBertForTokenClassification(config).save_pretrained(folder)
    _tokenizer(64).save_pretrained(folder)


def writer(folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {**TOWER, "vocab_size": len(WORDS) + 4, "max_position_embeddings": 256}
    config = LlamaConfig(**sizes, bos_token_id=2, eos_token_id=3, initializer_range=SPREAD)
    _seeded()
    LlamaForCausalLM(config).save_pretrained(folder)
    _tokenizer(256).save_pretrained(folder)


def whisper(folder: Path) -> None:
    """Save a Whisper whose tokens are whole words, so that its text for any sound reads as words."""
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperTokenizer,
    )

    end, start, english = "<|endoftext|>", "<|startoftranscript|>", "<|en|>"
    special = [start, english, "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]
    special += ["<|nospeech|>", "<|notimestamps|>"]
    words = {f"\u0120{word}": number for number, word in enumerate(WORDS)}  # as the tokenizer writes a space
    tokenizer = WhisperTokenizer(vocab={**words, end: len(words)}, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    number = {token: tokenizer.convert_tokens_to_ids(token) for token in (end, *special)}
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), number[end])
    common: dict[str, Any] = {**ends, "decoder_start_token_id": number[start]}
    common |= {"suppress_tokens": [], "begin_suppress_tokens": [number[end]]}
    sizes: dict[str, Any] = {"d_model": 32, "init_std": 0.3}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_layers": 2, f"{part}_attention_heads": 4, f"{part}_ffn_dim": 64}
    _seeded()
    model = WhisperForConditionalGeneration(WhisperConfig(vocab_size=len(tokenizer), **sizes, **common))
    model.generation_config = GenerationConfig(
        is_multilingual=True,
        lang_to_id={english: number[english]},
        task_to_id={task: number[f"<|{task}|>"] for task in ("translate", "transcribe")},
        no_timestamps_token_id=number["<|notimestamps|>"],
        max_length=16,
        **common,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor().save_pretrained(folder)


def yolos(folder: Path) -> None:
    import torch
    from transformers import YolosConfig, YolosForObjectDetection
    from transformers.models.yolos.image_processing_pil_yolos import YolosImageProcessorPil

    config = YolosConfig(**TOWER, image_size=[96, 128], patch_size=16, num_detection_tokens=8, **_labels(SHAPES))
    _seeded()
    model = YolosForObjectDetection(config)
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(0, 0.5)  # with the default weights, every query gives all labels the same confidence
    model.save_pretrained(folder)
    YolosImageProcessorPil(size={"shortest_edge": 96, "longest_edge": 128}).save_pretrained(folder)


def tables(folder: Path) -> None:
    import numpy as np
    import torch

    _seeded()
    linear = torch.nn.Linear(4, 3).eval()
    some = torch.export.Dim("rows", max=4096)
    exported = torch.export.export(linear, (torch.zeros(8, 4),), dynamic_shapes=({0: some},))
    torch.export.save(exported, folder / "linear.pt2")
    _onnx(linear.weight.detach().numpy().T.copy(), folder / "linear.onnx")

    import joblib
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(0)
    seen, species = draw.normal(4, 2, (90, 4)), np.repeat(["setosa", "versicolor", "virginica"], 30)
    joblib.dump(LogisticRegression(max_iter=500).fit(seen, species), folder / "species.joblib")

    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    measures = keras.Input((4,), name="measures")
    keras.Model(measures, keras.layers.Dense(3, activation="softmax")(measures)).save(folder / "dense.keras")


def _onnx(matrix: Any, file: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["measures", "matrix"], ["product"])],
        "linear",
        [helper.make_tensor_value_info("measures", TensorProto.FLOAT, ["rows", len(MEASURES)])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, ["rows", matrix.shape[1]])],
        [helper.make_tensor("matrix", TensorProto.FLOAT, matrix.shape, matrix.ravel())],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), file)


def _seeded() -> None:
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.manual_seed(0)


def _labels(names: tuple[str, ...]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}


def _image_processor() -> Any:
    from transformers import ViTImageProcessorPil

    return ViTImageProcessorPil(size={"height": 64, "width": 64})


def _tokenizer(longest: int) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **special)
