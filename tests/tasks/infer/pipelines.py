"""Small random models for the pipelines of transformers, each saved with the parts that its pipeline needs."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GLPNConfig,
    GLPNForDepthEstimation,
    LayoutLMConfig,
    LayoutLMForQuestionAnswering,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    TapasConfig,
    TapasForQuestionAnswering,
    TapasTokenizer,
    ViTConfig,
    ViTForImageClassification,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForSequenceClassification,
)
from transformers.models.glpn.image_processing_pil_glpn import GLPNImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tests.tasks.infer.chat_models import chat_model
from tests.tasks.infer.detectors import write_detector
from tests.tasks.infer.words import WORDS

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MORE = ["This", "example", "is", "photo", "of", ".", "cats", "news"]
VOCABULARY = [*SPECIAL, *WORDS, *MORE]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}


def bert_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", pair, special)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, mask_token="[MASK]", model_max_length=32, **names
    ).save_pretrained(folder)


def labels(*names: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: at for at, name in enumerate(names)}}


def save(model: PreTrainedModel, folder: Path, spread: float = 0.3) -> None:
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(0, spread)
    model.save_pretrained(folder)


def write(folder: Path, task: str) -> Path:
    """Write a model for `task` to `folder`."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(1)
    WRITERS[task](folder)
    return folder


def _bert(kind: type[PreTrainedModel], **settings: Any) -> Any:
    def write_bert(folder: Path) -> None:
        save(kind(BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=40, **SMALL, **settings)), folder)
        bert_tokenizer(folder)

    return write_bert


def _document(folder: Path) -> None:
    config = LayoutLMConfig(vocab_size=len(VOCABULARY), max_position_embeddings=40, **SMALL)
    save(LayoutLMForQuestionAnswering(config), folder)
    bert_tokenizer(folder)


def _images(folder: Path) -> None:
    save(ViTForImageClassification(ViTConfig(**SMALL, image_size=32, patch_size=16, **labels("cat", "sea"))), folder)
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)


def _depth(folder: Path) -> None:
    sizes = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2]}
    save(GLPNForDepthEstimation(GLPNConfig(**sizes, decoder_hidden_size=16)), folder)
    GLPNImageProcessorPil().save_pretrained(folder)


def _sounds(folder: Path) -> None:
    """Wav2Vec2 without a mask for padding: a longer neighbour would change a row's scores."""
    sizes = {"conv_dim": (16, 16), "conv_stride": (20, 16), "conv_kernel": (20, 16), "num_feat_extract_layers": 2}
    positions = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    config = Wav2Vec2Config(**SMALL, **sizes, **positions, **labels("song", "speech", "noise"))
    save(Wav2Vec2ForSequenceClassification(config), folder)
    Wav2Vec2FeatureExtractor(return_attention_mask=False).save_pretrained(folder)


def _tapas(folder: Path) -> None:
    vocabulary = folder / "words.txt"
    vocabulary.write_text("\n".join(["[EMPTY]", *VOCABULARY, *"0123456789", *"abcdefghij"]), encoding="utf-8")
    tokenizer = TapasTokenizer(str(vocabulary))
    sizes = {
        "vocab_size": len(tokenizer),
        "type_vocab_sizes": [3, 64, 64, 2, 64, 64, 10],
        "max_position_embeddings": 64,
    }
    save(TapasForQuestionAnswering(TapasConfig(**SMALL, **sizes)), folder)
    tokenizer.save_pretrained(folder)


WRITERS: dict[str, Any] = {
    "text-classification": _bert(BertForSequenceClassification, **labels("NEGATIVE", "POSITIVE")),
    "zero-shot-classification": _bert(
        BertForSequenceClassification, **labels("contradiction", "neutral", "entailment")
    ),
    "token-classification": _bert(BertForTokenClassification, **labels("O", "B-ANIMAL", "B-PLACE")),
    "fill-mask": _bert(BertForMaskedLM),
    "feature-extraction": _bert(BertModel),
    "document-question-answering": _document,
    "depth-estimation": _depth,
    "object-detection": lambda folder: write_detector(folder, "yolos"),
    "image-classification": _images,
    "audio-classification": _sounds,
    "table-question-answering": _tapas,
    "text-generation": chat_model,
}


def images(*shapes: tuple[int, int]) -> np.ndarray:
    """Noise of these sizes, of low resolution."""
    draw, found = np.random.default_rng(0), np.empty(len(shapes), object)
    for place, (height, width) in enumerate(shapes):
        found[place] = draw.integers(0, 256, (height // 8, width // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    return found
