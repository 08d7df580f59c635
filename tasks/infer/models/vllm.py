"""Chat completion on vLLM: each worker starts its own vLLM server, and keeps many concurrent requests to it.

In and out: chat/settings.py. The server: chat/vllm_server.py.
"""

from typing import Any, ClassVar, Literal

from overnight.tasks.infer.chat.messages import MEDIA, parts_of
from overnight.tasks.infer.chat.remote_chat import RemoteChat
from overnight.tasks.infer.chat.request_fields import FAMILIES, RequestFields
from overnight.tasks.infer.chat.settings import ChatTemplateKwargs, TopK
from overnight.tasks.infer.chat.vllm_server import SERVED, VLLMEngine
from overnight.tasks.infer.predictor import Offer, Predict


class VLLM(VLLMEngine, RemoteChat):
    """Answers chat messages by vLLM, in an environment of its own."""

    kind: Literal["vllm"] = "vllm"
    offer: ClassVar[Offer] = Offer(
        "answers to a question about each text, by vLLM on GPUs",
        "text",
        "meta-llama/Llama-3.3-70B-Instruct",
        lambda column: {"user": f"{{{column}}}"},
    )
    top_k: TopK = None
    chat_template_kwargs: ChatTemplateKwargs = {}

    def request_fields(self) -> RequestFields:
        return FAMILIES["vllm"]

    def body(self, messages: Any) -> dict[str, Any]:
        body = self.plain_body(SERVED, messages)
        if self.top_k is not None:
            body.setdefault("top_k", self.top_k)
        if self.chat_template_kwargs:
            body.setdefault("chat_template_kwargs", self.chat_template_kwargs)
        return body

    def media_limits(self) -> dict[str, int]:
        """Return the images and sounds of the prompt's parts; none for a prompt of texts, which any limit allows."""
        kinds = [part.kind for part in (*parts_of(self.system), *parts_of(self.user)) if part.column]
        if self.messages or not kinds:
            return {}
        return {kind: kinds.count(kind) for kind in (*MEDIA, "video")}

    def load(self) -> Predict:
        server = self.server()
        return self.answered_by(server, self.asking(self.requests_to_server(server)))
