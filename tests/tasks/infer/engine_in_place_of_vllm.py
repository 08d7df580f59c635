"""A server with the command line and the routes of vLLM's, whose answers are the prompts in reverse.

`interpreter_in` writes a script that starts it, for `python` of a job. Each start is a line of the file `starts`.
"""

import http.server
import json
import sys
from pathlib import Path
from typing import Any

from tests.tasks.infer.retrieval_server import RetrievalServer, score_of

ROOT = Path(__file__).parents[3]


def interpreter_in(folder: Path) -> Path:
    script = folder / "python"
    module = "tests.tasks.infer.engine_in_place_of_vllm"
    script.write_text(f'#!/bin/sh\ncd {ROOT}\nexec {sys.executable} -m {module} "{folder}/starts" "$@"\n')
    script.chmod(0o755)
    return script


def starts_in(folder: Path) -> list[str]:
    """The arguments of each start."""
    return (folder / "starts").read_text().splitlines()


def serve(port: int) -> None:
    counted = {"prompt": 0, "generation": 0}
    retrieval = RetrievalServer()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            lines = [f"vllm:{name}_tokens_total {float(count)}" for name, count in counted.items()]
            self._send("\n".join(lines).encode() + b"\n")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(json.dumps(self._answer(body)).encode())

        def _answer(self, body: dict[str, Any]) -> Any:
            if "query" in body:
                scores = [score_of(body["query"], text) for text in body["documents"]]
                return {"results": [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]}
            if "input" in body:
                return retrieval.embeddings(body, body["input"])
            text = body["messages"][-1]["content"]
            counted["prompt"] += len(text.split())
            counted["generation"] += 1
            choice = {"index": 0, "message": {"role": "assistant", "content": text[::-1]}, "finish_reason": "stop"}
            return {"choices": [choice], "usage": {"prompt_tokens": len(text.split()), "completion_tokens": 1}}

        def _send(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    starts, *arguments = sys.argv[1:]
    with open(starts, "a") as file:
        print(*arguments, file=file)
    serve(int(arguments[arguments.index("--port") + 1]))
