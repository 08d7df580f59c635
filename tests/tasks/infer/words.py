"""The words that the small tokenizers of these tests know, such texts and such a tokenizer."""

import random
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "two", "old", "dogs"]
WORDS += ["run", "past", "red", "house", "sea"]


def some_texts(count: int, longest: int) -> list[str]:
    """Texts of very different lengths, in no order."""
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.choice([1, 3, 10, longest]))) for _ in range(count)]


def word_tokenizer(**special: Any) -> PreTrainedTokenizerFast:
    """Split at spaces. With `cls_token` and `sep_token`, they surround a text, as BERT's do."""
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if "cls_token" in special:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", **special)
