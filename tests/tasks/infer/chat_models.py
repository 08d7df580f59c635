"""Small random language models with a chat template, some of whose words are JSON answers."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.tasks.infer.words import WORDS

ANSWERS = ['{"mood":"good"}', '{"mood":"bad"}', '{"mood":"odd"}', '{"mood":7}', '{"mood":', "[]"]
SPECIAL = ["[UNK]", "[END]", "<system>", "<user>", "<assistant>"]
VOCABULARY = [*SPECIAL, *WORDS, *ANSWERS]
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} [END] {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}{% if loudly %}and {% endif %}"
)


def chat_tokenizer(template: str | None = TEMPLATE, more: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """Splits at spaces. Without a pad token, as Llama's."""
    vocabulary = {word: number for number, word in enumerate([*VOCABULARY, *more])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[END]", unk_token="[UNK]")
    made.chat_template = template
    return made


def chat_model(folder: Path, template: str | None = TEMPLATE) -> Path:
    """A random model that seldom ends by itself before its twelfth token, saved in `folder`."""
    torch.manual_seed(5)
    sizes = {
        "hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": len(VOCABULARY) + 5, "max_position_embeddings": 64,
        "initializer_range": 0.3, "eos_token_id": 1, "bos_token_id": None,
    }  # fmt: skip
    LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(folder)
    chat_tokenizer(template).save_pretrained(folder)
    return folder


def byte_tokenizer(*special: str) -> PreTrainedTokenizerFast:
    """A token for each of the 256 bytes, which grammars need."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[END]", pad_token="[PAD]")
    made.add_special_tokens({"additional_special_tokens": list(special)})
    return made


def byte_model(folder: Path) -> Path:
    """A random model whose tokens are bytes, saved in `folder`."""
    torch.manual_seed(5)
    made = byte_tokenizer()
    made.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    sizes = {
        "hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": len(made) + 6, "max_position_embeddings": 2048,
        "initializer_range": 0.3, "eos_token_id": made.eos_token_id, "bos_token_id": None,
    }  # fmt: skip
    LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


def some_words(count: int) -> list[str]:
    """Texts of unlike lengths, all different."""
    return [" ".join(WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(1 + i % 9)) for i in range(count)]
