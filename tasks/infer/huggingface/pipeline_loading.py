"""The loading of a transformers pipeline from a checkpoint: a model with all its weights, and the parts of the task.

`transformers.pipeline` would fill missing weights with random numbers, and would send a request to the hub for each
part. So this file chooses the parts as it does, and loads them itself.
"""

import pkgutil
from typing import Any

from overnight.tasks.errors import JobError, did_you_mean
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint, Dtype

PARTS = {  # the attributes of a pipeline, and the class of transformers that loads each
    "tokenizer": "AutoTokenizer",
    "image_processor": "AutoImageProcessor",
    "feature_extractor": "AutoFeatureExtractor",
    "processor": "AutoProcessor",
}
INSTEAD = {  # tasks that transformers has removed, and the kind of model for such work
    "image-to-text": "image_captioning",
    "question-answering": "chat",
    "summarization": "text_generation",
    "text2text-generation": "text_generation",
    "translation": "text_generation",
    "visual-question-answering": "image_captioning",
}
NOT_OF_COLUMNS = {  # tasks whose inputs are addresses of files, and what to use instead
    "any-to-any": "kind: image_captioning",
    "video-classification": "sample_frames in preprocess, and task: image-classification",
}


def supported(task: str) -> dict[str, Any]:
    """Return what transformers records about a task, such as its classes, with its main name as `task`."""
    import transformers
    from transformers.pipelines import check_task, get_supported_tasks

    tasks = get_supported_tasks()
    setting = f"task: {task}"
    if task in NOT_OF_COLUMNS:
        raise JobError(f"{setting}: this pipeline opens files that rows name. Use {NOT_OF_COLUMNS[task]}.", "infer")
    if task not in tasks:
        family = "translation" if task.startswith("translation_") else task
        hint = f" For such work use kind: {INSTEAD[family]}." if family in INSTEAD else ""
        raise JobError(
            f"{setting}: expected a task of transformers {transformers.__version__}, found another"
            f"{did_you_mean(task, tasks)}.{hint} Its tasks are {', '.join(tasks)}.",
            "infer",
        )
    name, info, _ = check_task(task)
    return {**info, "task": name}


def load_pipeline(
    checkpoint: Checkpoint, info: dict[str, Any], dtype: Dtype, device: Any, reads_pooler: bool = False
) -> Any:
    """Return the pipeline of a task. Unless `reads_pooler`, features need no weights of a pooler."""
    from transformers import pipeline

    task = info["task"]
    try:
        extracts = task in ("feature-extraction", "image-feature-extraction")
        model = _model(checkpoint, info, dtype, "pooler" if extracts and not reads_pooler else None)
        pipeline_class = info["impl"]
        if isinstance(pipeline_class, str):
            pipeline_class = pkgutil.resolve_name(pipeline_class)
        parts = _parts(checkpoint, pipeline_class)
        result = pipeline(task, model=model, device=device, **parts)
    except ImportError as error:
        raise library_missing(task, error) from error
    except JobError:
        raise
    except Exception as error:
        raise checkpoint.unusable(f"it cannot be used for task: {task}: {error}") from error
    if getattr(result, "entailment_id", 0) == -1:
        raise checkpoint.unusable(
            f"task: {task}: expected a label that begins with entail, as models of natural language inference have, "
            f"found {', '.join(model.config.label2id)}"
        )
    return result


def library_missing(task: str, error: ImportError) -> JobError:
    return JobError(
        f"task: {task}: expected the libraries that this task needs where the job runs, found one missing: "
        f"{' '.join(str(error).split())} Install it on every machine that runs the job.",
        "infer",
    )


def _model(checkpoint: Checkpoint, info: dict[str, Any], dtype: Dtype, optional: str | None) -> Any:
    """Load the model by the first class that can, of the task or of the names in its config."""
    import transformers
    from transformers import AutoConfig

    config = checkpoint.load(AutoConfig)
    architectures = [getattr(transformers, name, None) for name in config.architectures or ()]
    problems = []
    for auto_class in [*info["pt"], *filter(None, architectures)]:
        try:
            return checkpoint.weights(auto_class, dtype, optional=optional)[0]
        except JobError as error:
            if error.__cause__ is None:  # it loads, but weights are missing
                raise
            problems.append(error.message)
    raise checkpoint.unusable(f"no model for task: {info['task']}: {' '.join(problems)[:1000]}")


def _parts(checkpoint: Checkpoint, pipeline_class: Any) -> dict[str, Any]:
    import transformers

    parts = {}
    for name, auto_class in PARTS.items():
        is_needed = getattr(pipeline_class, f"_load_{name}", None)  # None: optional
        if is_needed is False:
            continue
        # the same pixels with and without torchvision
        settings = {"backend": "pil"} if name == "image_processor" else {}
        try:
            part = checkpoint.load(getattr(transformers, auto_class), **settings)
            if name == "processor" and not isinstance(part, transformers.ProcessorMixin):
                content = type(part).__name__  # of a model of one kind of input
                raise checkpoint.unusable(f"expected a processor of several kinds of input, found {content}")
            parts[name] = part
        except JobError:
            if is_needed:
                raise
    return parts
