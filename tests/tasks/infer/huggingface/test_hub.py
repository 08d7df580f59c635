"""Hub models, over HTTP from a small server that answers as the hub does; a fresh process each, as workers are."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

COMMIT = "c0ffee" + "0" * 34
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "modules.json": b'[{"type": "x.Transformer", "path": ""}]',
    "model.safetensors": b"not fetched by find",
}
FIND = """
import sys
from overnight.tasks.infer.huggingface import model_location as pretrained
checkpoint = pretrained.find(sys.argv[1])
print(checkpoint.settings_file("modules.json"), checkpoint.settings_file("1_Pooling/config.json"))
print(checkpoint.revision, sorted(path.name for path in checkpoint.folder.iterdir()))
"""


class Hub(BaseHTTPRequestHandler):
    """One model, someone/tiny, with FILES at COMMIT."""

    def do_GET(self):
        path, model = self.path.partition("?")[0], "/someone/tiny"
        if path in (f"/api/models{model}", f"/api/models{model}/revision/main"):
            siblings = [{"rfilename": name} for name in FILES]
            self.answer(json.dumps({"id": model[1:], "sha": COMMIT, "siblings": siblings}).encode())
        elif path.startswith(f"/api/models{model}/tree"):
            tree = [{"type": "file", "path": name, "size": len(data), "oid": "0"} for name, data in FILES.items()]
            self.answer(json.dumps(tree).encode())
        elif (name := path.removeprefix(f"{model}/resolve/{COMMIT}/")) in FILES:
            self.answer(FILES[name])
        else:
            self.answer(b"", 404, "RepoNotFound")

    do_HEAD = do_GET

    def answer(self, body, status=200, error=""):
        self.send_response(status)
        tag = hashlib.sha256(body).hexdigest()
        sent = {"Content-Length": str(len(body)), "ETag": f'"{tag}"', "X-Repo-Commit": COMMIT, "X-Error-Code": error}
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path):
    """A running hub, and a function that finds a model there in a process with a cache of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"

    def find(model):
        settings = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "PYTHONPATH": os.getcwd()}
        return subprocess.run(
            [sys.executable, "-c", FIND, model], env=os.environ | settings, capture_output=True, text=True, check=False
        )

    yield server, find
    server.shutdown()
    server.server_close()


def test_a_hub_model_is_pinned_to_its_commit_and_found_again_without_a_network(hub):
    server, find = hub
    expected = f"[{{'type': 'x.Transformer', 'path': ''}}] None\n{COMMIT} ['config.json', 'modules.json']\n"
    assert find("someone/tiny").stdout == expected
    server.shutdown()
    server.server_close()
    assert find("someone/tiny").stdout == expected


def test_a_model_that_the_hub_does_not_know_is_refused_with_its_answer(hub):
    errors = hub[1]("someone/else").stderr
    assert "JobError: model someone/else: expected a folder" in errors
    assert "Repository Not Found" in errors


def test_without_network_and_cache_both_ways_out_are_named(hub):
    server, find = hub
    server.shutdown()
    server.server_close()
    assert "the hub cannot be reached" in find("someone/tiny").stderr
