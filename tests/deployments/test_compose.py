"""docker-compose.yml against the schema of the Compose specification, and what Prometheus and Grafana are given."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from overnight.cli.main import main
from tests.metric_names import metric_names

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


def scrape_configs() -> dict[str, dict[str, Any]]:
    config = yaml.safe_load((ROOT / "deployments/prometheus/prometheus.yml").read_text())
    return {job["job_name"]: job for job in config["scrape_configs"]}


def test_prometheus_looks_at_every_service_of_ray_and_at_the_port_that_it_exports() -> None:
    services = compose_file()["services"]
    exporting = {
        name for name, service in services.items() if "--metrics-export-port=8090" in service.get("command", [])
    }
    [names] = scrape_configs()["ray"]["dns_sd_configs"]
    assert set(names["names"]) == exporting | {"prefect-worker"}
    assert names["port"] == 8090
    assert "--metrics-export-port=8090" in (ROOT / "deployments/docker/worker.sh").read_text()


def test_prometheus_looks_at_the_other_services_and_misses_each_that_is_gone() -> None:
    services = compose_file()["services"]
    looked_at = {
        name: found["dns_sd_configs"][0] for name, found in scrape_configs().items() if "dns_sd_configs" in found
    }
    assert {name for found in looked_at.values() for name in found["names"]} <= set(services)
    ports = {name: found["port"] for name, found in looked_at.items()}
    command = main.commands["metrics"].make_context("metrics", services["overnight-metrics"]["command"][2:])
    assert ports["overnight"] == command.params["port"]
    assert ports["prefect"] == 4200
    rules = yaml.safe_load((ROOT / "deployments/prometheus/alerts.yml").read_text())["groups"]
    [missing] = [rule for group in rules for rule in group["rules"] if rule["alert"] == "TargetMissing"]
    assert set(re.findall(r'absent\(up{job="([a-z]+)"}\)', missing["expr"])) == set(looked_at)


def test_prometheus_finds_its_rules_where_compose_puts_them() -> None:
    config = yaml.safe_load((ROOT / "deployments/prometheus/prometheus.yml").read_text())
    service = compose_file()["services"]["prometheus"]
    assert "./deployments/prometheus:/etc/prometheus:ro" in service["volumes"]
    assert "--config.file=/etc/prometheus/prometheus.yml" in service["command"]
    assert all((ROOT / "deployments/prometheus" / name).is_file() for name in config["rule_files"])


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: Debian's package prometheus has it")
@pytest.mark.parametrize("arguments", ["check config prometheus.yml", "test rules alerts-test.yml"])
def test_prometheus_accepts_its_configuration_and_the_alerts_fire_when_they_should(arguments: str) -> None:
    command = ["promtool", *arguments.split()]
    done = subprocess.run(
        command, cwd=ROOT / "deployments/prometheus", capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_test_a_severity_and_a_summary() -> None:
    rules = yaml.safe_load((ROOT / "deployments/prometheus/alerts.yml").read_text())["groups"]
    tests = (ROOT / "deployments/prometheus/alerts-test.yml").read_text()
    for rule in (rule for group in rules for rule in group["rules"]):
        assert rule["alert"] in tests
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]


def test_alerts_use_the_metrics_that_overnight_serves() -> None:
    rules = (ROOT / "deployments/prometheus/alerts.yml").read_text()
    assert set(re.findall(r"overnight_(?:partition|job|workers|runs)_[a-z_]+", rules)) <= metric_names()


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


def test_the_dashboard_shows_the_partitions_with_metrics_that_are_served_and_no_panel_covers_another() -> None:
    panels = json.loads((GRAFANA / "dashboards/overnight.json").read_text())["panels"]
    asked = {panel["title"]: " ".join(target["expr"] for target in panel["targets"]) for panel in panels}
    names = set(re.findall(r"overnight_[a-z_]+", " ".join(asked.values())))
    assert names <= metric_names()
    assert {f"overnight_partition_{what}" for what in ("status", "late", "rows_quarantined")} <= names
    assert "by (job, partition" in asked["Partitions, by job"]
    covered = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(covered) == len(set(covered))
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_rays_dashboard_knows_prometheus_and_grafana_and_grafana_reads_rays_dashboards() -> None:
    services = compose_file()["services"]
    head, grafana = services["ray-head"], services["grafana"]
    set_to = head["environment"]
    for name, port in (("RAY_PROMETHEUS_HOST", 9090), ("RAY_GRAFANA_HOST", 3000)):
        host = urlsplit(set_to[name])
        assert host.hostname in services
        assert host.port == port
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert set_to["RAY_PROMETHEUS_NAME"] == source["name"]
    assert any(port.startswith(set_to["RAY_GRAFANA_IFRAME_HOST"].removeprefix("http://")) for port in grafana["ports"])
    assert grafana["environment"]["GF_SECURITY_ALLOW_EMBEDDING"] == "true"
    [provider] = yaml.safe_load((GRAFANA / "provisioning/dashboards/ray.yaml").read_text())["providers"]
    folder = set_to["RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR"]
    assert f"ray-dashboards:{folder}" in head["volumes"]
    assert f"ray-dashboards:{provider['options']['path']}:ro" in grafana["volumes"]
    owned = re.search(r"chown overnight:overnight (.*)", (ROOT / "deployments/docker/Dockerfile").read_text())
    assert owned
    assert folder in owned[1].split()


def test_the_image_has_all_that_a_deployment_reads() -> None:
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"!deployments/automations/*.yaml", "!deployments/jobs/*", "!deployments/prefect.yaml"} <= set(kept)
    assert "!deployments/docker/worker.sh" in kept
