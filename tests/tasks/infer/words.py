"""The words that the small tokenizers of these tests know, and such a tokenizer."""

from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = "the cat sat on a mat and saw two old dogs run past red house sea".split()


def word_tokenizer(**special: Any) -> PreTrainedTokenizerFast:
    """Split at spaces. With `cls_token` and `sep_token`, they surround a text, as BERT's do."""
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if "cls_token" in special:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", **special)
