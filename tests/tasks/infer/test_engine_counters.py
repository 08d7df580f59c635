"""The counters of an engine's server, as vLLM 0.32 writes them."""

import contextlib
import http.server
import threading
from collections.abc import Iterator

from overnight.tasks.infer.engine_counters import read_counters

PAGE = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="model"} 171.0
vllm:prompt_tokens_total{engine="1",model_name="model"} 29.0
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="model"} 1.795892419057622e+09
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="model"} 15.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="model"} 0.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="model"} 128.0
"""


@contextlib.contextmanager
def page_server(status: int, page: str) -> Iterator[str]:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_the_counters_of_all_engines_of_a_server_are_summed() -> None:
    with page_server(200, PAGE) as url:
        assert read_counters(url) == {"prompt_tokens": 200, "generated_tokens": 15, "cached_tokens": 128}


def test_a_server_that_does_not_answer_has_no_counters() -> None:
    with page_server(503, PAGE) as url:
        assert read_counters(url) == {}
    assert read_counters(url) == {}
    with page_server(200, "<html>a proxy {</html>") as url:
        assert read_counters(url) == {}
