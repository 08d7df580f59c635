from typing import Any

import pytest
from prefect.client.orchestration import get_client


@pytest.fixture
def client(prefect_api: str, ray_session: None) -> Any:
    with get_client(sync_client=True) as client:
        yield client
