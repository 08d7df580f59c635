"""docker-compose.yml against the schema of the Compose specification, and what Prometheus and Grafana are given."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GRAFANA = ROOT / "deployments/grafana"


def compose_schema() -> dict[str, Any]:
    """As the package check-jsonschema carries it."""
    vendored = files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
    return dict(json.loads(vendored.read_text()))


def compose_file() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


def test_the_compose_file_is_valid() -> None:
    jsonschema.validate(compose_file(), compose_schema())


def test_the_compose_files_validator_sees_a_wrong_key() -> None:
    wrong = compose_file()
    wrong["services"]["ray-head"]["healtcheck"] = {}
    with pytest.raises(jsonschema.ValidationError, match="healtcheck"):
        jsonschema.validate(wrong, compose_schema())


def test_ports_are_on_this_machine_alone() -> None:
    ports = [port for service in compose_file()["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 6
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_setting_of_the_compose_file_is_in_the_example() -> None:
    wanted = set(re.findall(r"\$\{([A-Z_0-9]+)", (ROOT / "docker-compose.yml").read_text()))
    lines = (ROOT / ".env.example").read_text().splitlines()
    assert wanted == {line.split("=")[0] for line in lines if line and not line.startswith("#")}


def test_prometheus_looks_at_every_service_of_ray_and_at_the_port_that_it_exports() -> None:
    services = compose_file()["services"]
    exporting = {
        name for name, service in services.items() if "--metrics-export-port=8090" in service.get("command", [])
    }
    [ray, prefect] = yaml.safe_load((ROOT / "deployments/prometheus/prometheus.yml").read_text())["scrape_configs"]
    [names] = ray["dns_sd_configs"]
    assert set(names["names"]) == exporting | {"prefect-worker"}
    assert names["port"] == 8090
    assert "--metrics-export-port=8090" in (ROOT / "deployments/docker/worker.sh").read_text()
    assert prefect["dns_sd_configs"][0]["names"][0] in services


def test_the_dashboard_asks_the_data_source_that_is_provisioned() -> None:
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    dashboard = json.loads((GRAFANA / "dashboards/overnight.json").read_text())
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {source["uid"]}
    assert source["url"].removeprefix("http://").split(":")[0] in compose_file()["services"]
    assert all(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])


def test_the_dashboards_lie_where_grafana_looks() -> None:
    [provider] = yaml.safe_load((GRAFANA / "provisioning/dashboards/overnight.yaml").read_text())["providers"]
    mounts = compose_file()["services"]["grafana"]["volumes"]
    assert f"./deployments/grafana/dashboards:{provider['options']['path']}:ro" in mounts


def test_the_image_has_all_that_a_deployment_reads() -> None:
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"!deployments/automations/*.yaml", "!deployments/jobs/*", "!deployments/prefect.yaml"} <= set(kept)
    assert "!deployments/docker/worker.sh" in kept
