"""Make small data sets and language models for the pages in docs/how-to/.

reviews/<number>.jsonl     product, text, mood (the true one); one text is a question without a mood
articles/<number>.jsonl    module, text: the docstrings of Python's own modules; one is long
chat/                      a Llama with a chat template, trained in seconds to give a review's mood, as JSON or a word
llava/ summarizer/         a LLaVA and a BART with random weights
"""

import ast
import json
import string
import sysconfig
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from workload_models import TOWER, VISION

PRODUCTS = ("kettle", "lamp", "tent", "radio", "backpack", "keyboard", "chair", "torch")
VERDICTS = {
    "good": ("works every day", "is a joy to use", "is lovely", "is better than I hoped", "is worth its price"),
    "bad": ("broke in a week", "is a waste of money", "is ugly", "is worse than the old one", "went back to the shop"),
}
BEGINNINGS = ("This {}", "The {}", "My {}", "I bought it in May: the {}", "After a month the {}")
QUESTION, REPLY = "Does anybody know where the manual is?", "That is a question."
ONE_WORD = "In one word?"
SYSTEM = 'You judge reviews. Answer with JSON alone, as {"mood": "good"} or {"mood": "bad"}.'
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# The template of processors, for messages with parts.
TEMPLATE_OF_PARTS = (
    "{% for message in messages %}<{{ message['role'] }}>{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPECIAL = ("<pad>", "<end>", "<system>", "<user>", "<assistant>", "<image>")
PAD, END, IMAGE = SPECIAL.index("<pad>"), SPECIAL.index("<end>"), SPECIAL.index("<image>")
ENDS = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": None}
SPACES = ("\u0120", "\u010a")  # a space and the end of a line, as tokenizers of bytes write them
STEPS, BATCH = 140, 16


def reviews(folder: Path) -> None:
    rows = _some_reviews(60, seed=4)
    rows[17] = {"product": "radio", "text": QUESTION, "mood": None}
    _write(folder, rows)


def articles(folder: Path) -> None:
    rows = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*.py")):
        with warnings.catch_warnings(action="ignore"):
            rows.append({"module": file.stem, "text": ast.get_docstring(ast.parse(file.read_bytes())) or ""})
    rows.sort(key=lambda row: len(row["text"]))
    _write(folder, [row for row in rows if 200 < len(row["text"]) < 1500][:40] + rows[-1:])


def chat(folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    _seed()
    model = LlamaForCausalLM(LlamaConfig(**TOWER, vocab_size=len(tokenizer), max_position_embeddings=512, **ENDS))
    _teach(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def llava(folder: Path) -> None:
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    tokenizer = _tokenizer()
    tokenizer.chat_template = None
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**VISION, projection_dim=32, initializer_range=0.3),
        text_config=LlamaConfig(
            **TOWER, vocab_size=len(tokenizer), max_position_embeddings=256, initializer_range=0.3, **ENDS
        ),
        image_token_id=IMAGE,
        vision_feature_layer=-1,
    )
    _seed()
    model = LlavaForConditionalGeneration(config)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = END, PAD
    model.save_pretrained(folder)
    LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}),
        tokenizer,
        patch_size=VISION["patch_size"],
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE_OF_PARTS,
    ).save_pretrained(folder)


def summarizer(folder: Path) -> None:
    from transformers import BartConfig, BartForConditionalGeneration

    tokenizer = _tokenizer()
    sides = {"layers": 2, "ffn_dim": 64, "attention_heads": 4}
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sides.items()}
    sizes |= {"d_model": 32, "vocab_size": len(tokenizer), "max_position_embeddings": 1024}
    ends = {"pad_token_id": PAD, "bos_token_id": 2, "eos_token_id": END, "decoder_start_token_id": END}
    _seed()
    config = BartConfig(**sizes, **ends, forced_eos_token_id=END, init_std=0.3)
    BartForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)


def _some_reviews(count: int, seed: int) -> list[dict[str, Any]]:
    draw, rows = np.random.default_rng(seed), []
    for _ in range(count):
        product, beginning, mood = draw.choice(PRODUCTS), draw.choice(BEGINNINGS), draw.choice(list(VERDICTS))
        text = f"{beginning.format(product)} {draw.choice(VERDICTS[mood])}."
        rows.append({"product": str(product), "text": text, "mood": str(mood)})
    return rows


def _teach(model: Any, tokenizer: Any) -> None:
    """Train the model to answer reviews with JSON or, on request, one word, and questions with words.

    It learns each with and without a system message.
    """
    import torch

    torch.set_num_threads(1)  # more threads do not make so small a model faster, and they wait for busy cores
    examples = []
    for number, row in enumerate(_some_reviews(BATCH * STEPS, seed=5)):
        answer = json.dumps({"mood": row["mood"]})
        if number % 4 == 0:
            row["text"], answer = QUESTION, REPLY
        elif number % 4 == 1:
            row["text"], answer = f"{row['text']} {ONE_WORD}", row["mood"]
        told = [{"role": "system", "content": SYSTEM}] if number % 3 else []
        asked = {"role": "user", "content": f"About the {row['product']}: {row['text']}"}
        prompt = tokenizer.apply_chat_template([*told, asked], tokenize=False, add_generation_prompt=True)
        given, wanted = (tokenizer(text).input_ids for text in (prompt, f"{answer}<end>"))
        examples.append((given + wanted, [-100] * len(given) + wanted))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS)
    for step in range(STEPS):
        batch = examples[step * BATCH : (step + 1) * BATCH]
        longest = max(len(tokens) for tokens, _ in batch)
        tokens = torch.tensor([tokens + [PAD] * (longest - len(tokens)) for tokens, _ in batch])
        labels = torch.tensor([labels + [-100] * (longest - len(labels)) for _, labels in batch])
        model(input_ids=tokens, labels=labels).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()


def _tokenizer() -> Any:
    """Return a tokenizer of ASCII's characters and of pieces of words that are frequent in reviews."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [row["text"] for row in _some_reviews(500, seed=6)]
    seen: Iterable[str] = [SYSTEM, *[QUESTION, REPLY, ONE_WORD] * 50, *texts]
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=list(SPECIAL),
        initial_alphabet=[*SPACES, *string.ascii_letters, *string.digits, *string.punctuation],
        show_progress=False,
    )
    tokenizer.train_from_iterator(seen, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<end>",
        additional_special_tokens=list(SPECIAL[2:]),
        chat_template=TEMPLATE,
    )


def _seed() -> None:
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.manual_seed(0)


def _write(folder: Path, rows: list[dict[str, Any]]) -> None:
    for number in range(2):
        lines = [json.dumps(row) for row in rows[number::2]]
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
