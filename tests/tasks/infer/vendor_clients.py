"""Drive the server of the tests of batches with a provider's own client: `python vendor_clients.py DIALECT URL`.

It runs in an environment of its own, because google-genai names another version of a library than Overnight's extras.
It uploads two requests, lists, looks, reads and cancels, and prints what it has found as JSON.
"""

import io
import json
import sys
import urllib.request
from typing import Any

HOUR = 3600


def advance(url: str) -> None:
    body = json.dumps({"seconds": HOUR}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/clock", body, {"Content-Type": "application/json"}))


def anthropic(url: str) -> dict[str, Any]:
    from anthropic import Anthropic

    client = Anthropic(base_url=url, api_key="key", max_retries=0)
    message: Any = {"role": "user", "content": "text 0"}
    online = client.messages.create(model="m", max_tokens=5, messages=[message])
    requests: Any = []
    for number in range(2):
        params = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": f"text {number}"}]}
        requests.append({"custom_id": str(number), "params": params})
    batch = client.messages.batches.create(requests=requests)
    advance(url)
    ended = client.messages.batches.retrieve(batch.id)
    answers, errors = {}, {}
    for result in client.messages.batches.results(batch.id):
        if result.result.type == "succeeded":
            answers[result.custom_id] = result.result.message.content[0].text
        else:
            errors[result.custom_id] = result.result.error.error.message
    other = client.messages.batches.create(requests=requests)
    return {
        "online": online.content[0].text,
        "states": [batch.processing_status, ended.processing_status],
        "listed": len(list(client.messages.batches.list(limit=1))),
        "completed": ended.request_counts.succeeded,
        "answers": answers,
        "errors": errors,
        "cancelled": client.messages.batches.cancel(other.id).processing_status,
    }


def mistral(url: str) -> dict[str, Any]:
    from mistralai.client import Mistral

    client = Mistral(api_key="key", server_url=url)
    messages: Any = [{"role": "user", "content": "text 0"}]
    online = client.chat.complete(model="m", messages=messages)
    lines = []
    for number in range(2):
        body = {"model": "m", "messages": [{"role": "user", "content": f"text {number}"}]}
        lines.append(json.dumps({"custom_id": str(number), "body": body}))
    content: Any = {"file_name": "a.jsonl", "content": "\n".join(lines).encode()}
    file = client.files.upload(file=content, purpose="batch")
    settings: Any = {"input_files": [file.id], "model": "m", "endpoint": "/v1/chat/completions", "timeout_hours": 24}
    job = client.batch.jobs.create(**settings, metadata={"overnight": "label"})
    advance(url)
    ended = client.batch.jobs.get(job_id=job.id)
    found: dict[str, dict[str, Any]] = {"answers": {}, "errors": {}}
    for name, id in (("answers", ended.output_file), ("errors", ended.error_file)):
        for line in client.files.download(file_id=id).read().splitlines():
            item = json.loads(line)
            body = item["response"]["body"]
            text = body["choices"][0]["message"]["content"] if name == "answers" else body["error"]["message"]
            found[name][item["custom_id"]] = text
    other = client.batch.jobs.create(**settings)
    return {
        "online": online.choices[0].message.content,
        "states": [job.status, ended.status],
        "listed": client.batch.jobs.list(page=0, page_size=1).total,
        "files": [item.filename for item in client.files.list(purpose="batch", page_size=10).data][-1:],
        "label": ended.metadata,
        "completed": ended.succeeded_requests,
        "cancelled": client.batch.jobs.cancel(job_id=other.id).status,
        **found,
    }


def gemini(url: str) -> dict[str, Any]:
    from google import genai

    client = genai.Client(api_key="key", http_options={"base_url": url, "api_version": "v1"})
    online = client.models.generate_content(model="m", contents="text 0")
    lines = []
    for number in range(2):
        contents = [{"role": "user", "parts": [{"text": f"text {number}"}]}]
        lines.append(json.dumps({"key": str(number), "request": {"contents": contents}}))
    upload: Any = {"display_name": "a.jsonl", "mime_type": "application/jsonl"}
    file = client.files.upload(file=io.BytesIO("\n".join(lines).encode()), config=upload)
    batch = client.batches.create(model="m", src=file.name, config={"display_name": "label"})
    advance(url)
    ended = client.batches.get(name=batch.name)
    answers, errors = {}, {}
    for line in client.files.download(file=ended.dest.file_name).splitlines():
        item = json.loads(line)
        if "response" in item:
            response = genai.types.GenerateContentResponse.model_validate(item["response"])
            answers[item["key"]] = response.text
        else:
            errors[item["key"]] = item["error"]["message"]
    other = client.batches.create(model="m", src=file.name, config={"display_name": "other"})
    client.batches.cancel(name=other.name)
    return {
        "online": online.text,
        "states": [batch.state.name, ended.state.name],
        "listed": len(list(client.batches.list(config={"page_size": 1}))),
        "files": [item.display_name for item in client.files.list()][-1:],
        "label": ended.display_name,
        "completed": len(answers),
        "cancelled": client.batches.get(name=other.name).state.name,
        "answers": answers,
        "errors": errors,
    }


if __name__ == "__main__":
    dialect, url = sys.argv[1:]
    print(json.dumps({"anthropic": anthropic, "mistral": mistral, "gemini": gemini}[dialect](url)))
