"""Small random models that vLLM takes on CPUs, where a head of attention has at least 32 numbers."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from tests.contracts.models.adapters.pictures import TEMPLATE
from tests.tasks.infer.chat_models import VOCABULARY, chat_tokenizer
from tests.tasks.infer.words import WORDS

SIZES = {
    "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 512, "initializer_range": 0.3,
}  # fmt: skip
MARKS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
IMAGE_SIDE = 32
LORA_RANK, LORA_ALPHA = 4, 8


def llama(folder: Path) -> Path:
    """Write a random Llama with a chat template."""
    torch.manual_seed(5)
    tokenizer = chat_tokenizer()
    config = LlamaConfig(
        **SIZES,
        num_key_value_heads=2,
        vocab_size=len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def lora(base: Path, adapter: Path, merged: Path) -> None:
    """Write an adapter of `base` as PEFT does, and in `merged` the model with the adapter in its weights."""
    torch.manual_seed(6)
    network = AutoModelForCausalLM.from_pretrained(base)
    tensors = {}
    for number, layer in enumerate(network.model.layers):
        for name in ("q_proj", "v_proj"):
            weight = getattr(layer.self_attn, name).weight
            down, up = torch.randn(LORA_RANK, weight.shape[1]) * 0.2, torch.randn(weight.shape[0], LORA_RANK) * 0.2
            stem = f"base_model.model.model.layers.{number}.self_attn.{name}"
            tensors |= {f"{stem}.lora_A.weight": down, f"{stem}.lora_B.weight": up}
            weight.data += up @ down * (LORA_ALPHA / LORA_RANK)
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base), "bias": "none",
        "r": LORA_RANK, "lora_alpha": LORA_ALPHA, "lora_dropout": 0.0, "target_modules": ["q_proj", "v_proj"],
    }  # fmt: skip
    adapter.mkdir()
    save_file(tensors, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    network.save_pretrained(merged)
    chat_tokenizer().save_pretrained(merged)


def bert(folder: Path, model_class: Any = BertModel, **settings: Any) -> Path:
    """Write a random BERT whose tokens are words."""
    torch.manual_seed(5)
    vocabulary = {word: number for number, word in enumerate([*MARKS.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    model_class(BertConfig(**SIZES, vocab_size=len(vocabulary), **settings)).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **MARKS).save_pretrained(folder)
    return folder


def reranker(folder: Path) -> Path:
    """Write a random BERT that scores a pair of texts."""
    return bert(folder, BertForSequenceClassification, num_labels=1)


def smolvlm(folder: Path) -> Path:
    """Write a random Idefics3, as SmolVLM is. For LLaVA and Qwen2-VL vLLM needs torchvision, and here it does not."""
    torch.manual_seed(11)
    special = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
    words = len(VOCABULARY) + len(special)
    tokenizer = chat_tokenizer(None, special)
    tokenizer.add_special_tokens({"additional_special_tokens": [*special]})
    sizes = {name: SIZES[name] for name in SIZES if name != "max_position_embeddings"}
    config = Idefics3Config(
        vision_config={**sizes, "image_size": IMAGE_SIDE, "patch_size": 8},
        text_config=LlamaConfig(**SIZES, vocab_size=words, eos_token_id=1, bos_token_id=None, pad_token_id=0),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    network = Idefics3ForConditionalGeneration(config)
    network.generation_config.eos_token_id = 1
    network.save_pretrained(folder)
    edge = {"longest_edge": IMAGE_SIDE}
    images = Idefics3ImageProcessorPil(size=edge, max_image_size=edge, do_image_splitting=False)
    Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=TEMPLATE).save_pretrained(folder)
    return folder
