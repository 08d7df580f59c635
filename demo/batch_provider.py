"""Answer batches as OpenAI's API does, for docs/how-to/half-price.md: `python demo/batch_provider.py PORT [SECONDS]`.

Each batch takes SECONDS (8). The answer to a text is its first word, or for one that is empty the status 400.
"""

import email
import http.server
import json
import re
import sys
import time
from typing import Any

SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 8.0
FILES: dict[str, dict[str, Any]] = {}
CONTENTS: dict[str, bytes] = {}
BATCHES: dict[str, dict[str, Any]] = {}


def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON of a chat completion."""
    words = body["messages"][-1]["content"].split()
    if not words:
        return 400, {"error": {"message": "the message is empty", "type": "invalid_request_error"}}
    message = {"role": "assistant", "content": words[0]}
    usage = {"prompt_tokens": len(words), "completion_tokens": 1, "total_tokens": len(words) + 1}
    return 200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


def add_file(name: str, content: bytes) -> dict[str, Any]:
    id = f"file-{len(FILES)}"
    FILES[id] = {"id": id, "filename": name, "created_at": int(time.time())}
    CONTENTS[id] = content
    return FILES[id]


def add_batch(body: dict[str, Any]) -> dict[str, Any]:
    id = f"batch-{len(BATCHES)}"
    total = len(CONTENTS[body["input_file_id"]].splitlines())
    counts = {"total": total, "completed": 0, "failed": 0}
    moment = {"created_at": time.time(), "status": "in_progress"}
    BATCHES[id] = {**body, **moment, "id": id, "request_counts": counts}
    return BATCHES[id]


def look(batch: dict[str, Any], cancel: bool) -> dict[str, Any]:
    """End a batch that is due or cancelled, and return it."""
    if batch["status"] == "in_progress" and (cancel or time.time() >= batch["created_at"] + SECONDS):
        batch["status"] = "cancelled" if cancel else "completed"
        answers: dict[str, list[str]] = {"output_file_id": [], "error_file_id": []}
        for line in map(json.loads, [] if cancel else CONTENTS[batch["input_file_id"]].splitlines()):
            status, body = answer(line["body"])
            response = {"status_code": status, "body": body}
            key = "output_file_id" if status == 200 else "error_file_id"
            answers[key].append(json.dumps({"custom_id": line["custom_id"], "response": response, "error": None}))
        for key, lines in answers.items():
            batch[key] = add_file(key, "\n".join(lines).encode())["id"] if lines else None
        batch["request_counts"]["completed"] = len(answers["output_file_id"])
    return batch


class Provider(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._respond(b"")

    def do_POST(self) -> None:
        self._respond(self.rfile.read(int(self.headers["Content-Length"])))

    def _respond(self, content: bytes) -> None:
        status = 200
        result: Any = {}
        path = self.path.partition("?")[0].removeprefix("/v1")
        if path == "/chat/completions":
            status, result = answer(json.loads(content))
        elif path == "/files" and content:
            head = f"Content-Type: {self.headers['Content-Type']}\n\n".encode()
            parts: Any = email.message_from_bytes(head + content).get_payload()
            [file] = [part for part in parts if part.get_filename()]
            result = add_file(file.get_filename(), file.get_payload(decode=True))
        elif path in ("/files", "/batches") and not content:
            result = {"data": list((FILES if path == "/files" else BATCHES).values())[::-1]}
        elif path == "/batches":
            result = add_batch(json.loads(content))
        elif match := re.fullmatch(r"/batches/([\w-]+)(/cancel)?", path):
            result = look(BATCHES[match[1]], bool(match[2]))
        elif match := re.fullmatch(r"/files/([\w-]+)/content", path):
            result = CONTENTS[match[1]]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(result if isinstance(result, bytes) else json.dumps(result).encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Provider).serve_forever()
