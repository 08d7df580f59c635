"""`overnight init`: write a job file, and a skeleton of your own predictor, from the answers.

The job file has the model, the checks and the comments of a job that ships. It is valid, or no file
is written. Its paths are absolute, so that it can be deployed as it is.
"""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import overnight.flows.deploy
from overnight.cli.init_choices import CHAINS, Answers, is_table, offers
from overnight.flows.job.loading import absolute, is_relative, load_job
from overnight.flows.job.yaml_loader import parse_yaml, yaml_document, yaml_line
from overnight.tasks.errors import JobError
from overnight.tasks.storage.location import expand

# In a checkout a link to deployments/jobs
SHIPPED = Path(overnight.flows.deploy.__file__).parent / "shipped/jobs"
LONGEST_LINE = 116
PRICES = ("price_per_million_input_tokens", "price_per_million_output_tokens")  # of one model
MODULE = "my_models"
# For each content: its variable in the skeleton, its description, and a result and its expression.
EXAMPLES = {
    "image": ("images", "arrays of uint8, N x height x width x 3", "brightness", "images.mean(axis=(1, 2, 3))"),
    "audio": ("sounds", "N arrays of float32, 1 x samples", "loudness", "np.array([abs(one).max() for one in sounds])"),
}
EXAMPLE = ("values", "an array of N values", "length", "np.array([len(str(value)) for value in values])")
LABELS = "# label_from: the name of a file's folder becomes its label; remove it unless folders are labels."


def create(answers: Answers) -> list[Path]:
    """Write the job file and, for your own model, its skeleton. Return the paths of both.

    Raise `JobError` if a file exists or the job is not valid.
    """
    if answers.cron:
        expand(answers.path)  # raises JobError for a variable that is not set
    if not is_table(answers.source) and answers.text_column not in ("", answers.column):
        raise JobError(
            f"--text-column {answers.text_column}: for {answers.source} the work reads the column "
            f"{answers.column}. Leave this option out."
        )
    job_path = answers.folder / f"{answers.name}.yaml"
    files = {job_path: _job_file(answers)}
    if answers.work == "python":
        files[answers.folder / f"{_module(answers)}.py"] = skeleton(answers)
    answers.folder.mkdir(parents=True, exist_ok=True)
    own_files: list[Path] = []
    try:
        for path, content in files.items():
            with path.open("x", encoding="utf-8") as file:
                own_files.append(path)
                file.write(content)
        load_job(job_path)
    except BaseException as error:
        for path in own_files:
            path.unlink()
        if isinstance(error, FileExistsError):
            advice = "init overwrites no file. Choose another --name or folder."
            raise JobError(f"{error.filename}: exists already, and {advice}") from None
        raise
    return list(files)


def _module(answers: Answers) -> str:
    """Return the name of the skeleton's module, with the job's name if the folder has a module."""
    if (answers.folder / f"{MODULE}.py").exists():
        return f"{MODULE}_{answers.name.replace('-', '_')}"
    return MODULE


def shipped_job(work: str) -> str:
    """Return the text of the simplest shipped job with a model of this kind, or an empty text."""
    texts = []
    for file in sorted(SHIPPED.glob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        if re.search(rf"^  - {{?kind: {work}\b", text, re.MULTILINE):
            texts.append(text)
    return min(texts, key=lambda text: (text.count("- {kind"), text.count("\n")), default="")


def _job_file(answers: Answers) -> str:
    """Return the text of a job: that of a shipped one with the answers."""
    text, rows, source = shipped_job(answers.work), answers.inputs.rows, _source(answers)
    template = parse_yaml(text, "job") or {"checks": {"min_rows": 1, "max_quarantined": 0.01}}
    checks = template["checks"] | {"min_rows": max(rows // 2, 1)}
    sink = {"kind": "parquet", "path": absolute(str(answers.folder / "predictions" / answers.name))}
    lines = [f"# Run it in this folder: overnight run {answers.name}.yaml"]
    lines += re.findall(r"^# (?!yaml-language-server).*", text, re.MULTILINE)
    lines.append(f"name: {yaml_line(answers.name)}")
    for comment in answers.inputs.comments:
        lines.append(f"# {_one_line(comment)}")
    if "label_from" in source:
        lines.append(LABELS)
    lines.append(f"source: {yaml_line(source)}")
    models = _models(answers, template.get("inference", []))
    for section, entries in (("preprocess", answers.steps), ("inference", map(_entry, models))):
        if items := [f"  - {entry}" for entry in entries]:
            lines += [f"{section}:", *items]
    reason = f" # half of the {rows:,} rows that are there now" if rows > 1 else ""
    lines.append("# Fewer rows, or a greater share of them in quarantine, are not published.")
    lines.append(f"checks: {yaml_line(checks)}{reason}")
    return "\n".join([*lines, f"sink: {yaml_line(sink)}", *_schedule(answers)]) + "\n"


def _models(answers: Answers, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of `inference`: the one of this kind of a shipped job, with the answers."""
    work, inputs = answers.work, answers.inputs
    if work == "none":
        return []
    if work == "python":
        target = f"{_module(answers)}:Model"
        return [{"kind": work, "target": target, "kwargs": {"column": answers.column}}]
    if work in CHAINS:
        names = [name.strip() for name in answers.model.split(",")]
        if len(names) != 2 or not all(names):
            example = f"expected 2 names with commas, for example {CHAINS[work].model}"
            raise JobError(f"--model {answers.model}: {example}.")
        return [
            {"kind": "object_detection", "name": "found", "model": names[0]},
            {"kind": "crop_boxes", "boxes": "found_boxes"},
            {"kind": "image_classification", "name": "object", "model": names[1]},
        ]
    entry = next((entry for entry in entries if entry["kind"] == work), {"kind": work})
    entry.pop("name", None)
    offer = offers()[work]
    settings = offer.settings(answers.column)
    reads_table = answers.content != "image" and not answers.text_column
    if "columns" in settings and reads_table and inputs.numbers:
        settings["columns"] = list(inputs.numbers)
    key = next((key for key in ("file", "program") if key in entry), "model")
    model = answers.model
    if key != "model" and is_relative(model):
        model = absolute(model)
    settings = entry | {key: model, **settings}
    if model != offer.model:
        settings |= dict.fromkeys(PRICES)
    return [{name: value for name, value in settings.items() if value is not None}]


def _entry(settings: dict[str, Any]) -> str:
    """Return an entry of a list in YAML: one line, or a line for each setting if they are many."""
    line = yaml_line(settings)
    if len(line) <= LONGEST_LINE:
        return line
    return textwrap.indent(yaml_document(settings), "    ").strip()


def _source(answers: Answers) -> dict[str, Any]:
    path, inputs = answers.path, answers.inputs
    if is_relative(path):  # a deployment refuses relative paths
        path = absolute(path)
    if answers.content == "image" and is_table(answers.source) and not inputs.image_files:
        source = {"kind": "uris", "path": path, "content": "image", "uri_column": inputs.image_uris}
        names = [name for name in inputs.names if name != inputs.image_uris]
        return source | ({"keep": names} if names else {})
    source = {"kind": answers.source, "path": path, **inputs.settings}
    if answers.source == "images" and inputs.has_folders:
        source["label_from"] = "parent"
    return source


def _schedule(answers: Answers) -> list[str]:
    cron = f"cron: {json.dumps(answers.cron or '0 2 * * *')}, timezone: {yaml_line(answers.timezone)}"
    if "{partition}" in answers.path:
        return [f"schedule: {{{cron}, offset_days: -1}} # each run takes the day before"]
    if answers.cron:
        return [f"schedule: {{{cron}}} # each run takes all inputs, if they changed"]
    return []


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def skeleton(answers: Answers) -> str:
    """Return the source text of the user's own model, which runs as it is."""
    variable, about, result, value = EXAMPLES.get(answers.content, EXAMPLE)
    return f'''"""A model of your own. Each worker loads it once and calls it for each batch. Replace the example."""

import numpy as np


class Model:
    def __init__(self, column: str = "{answers.column}") -> None:
        """Load the weights here. Each worker calls this once, with the `kwargs` of the job file."""
        self.column = column

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return new columns for a batch: arrays of N values, from the arrays of N rows in `batch`."""
        {variable} = batch[self.column]  # {about}
        return {{"{result}": {value}}}
'''
