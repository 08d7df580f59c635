"""docker-compose.yml against the schema of the Compose specification, and what Prometheus and Grafana are given."""

import configparser
import copy
import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
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
PROMETHEUS, GRAFANA = ROOT / "deployments/prometheus", ROOT / "deployments/grafana"
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SETTINGS = dict(re.findall(r"\$\{([A-Z_0-9]+)(?::-([^}]*))?", TEXT))  # the default by the name
NODES = {"prefect-worker", "ray-head", "ray-worker", "ray-gpu-worker"}
MEMBERS = {
    network: {name for name in SERVICES if network in SERVICES[name]["networks"]} for network in COMPOSE["networks"]
}
SCRAPES = {
    job["job_name"]: job for job in yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
}
ALERTS = (PROMETHEUS / "alerts.yml").read_text()
RULES = [rule for group in yaml.safe_load(ALERTS)["groups"] for rule in group["rules"]]
PANELS = json.loads((GRAFANA / "dashboards/overnight.json").read_text())["panels"]
[DATA_SOURCE] = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
SUSPICIOUS = re.compile(r"PASSWORD|TOKEN|SECRET|AUTH_STRING|ACCESS_KEY|CREDENTIALS|API_KEY")


def mounted(service: dict[str, Any]) -> set[str]:
    """Return the names of the secrets that a service mounts."""
    return {secret["source"] if isinstance(secret, dict) else secret for secret in service.get("secrets", [])}


def provider(name: str) -> str:
    """Return the folder of a provider of dashboards."""
    [found] = yaml.safe_load((GRAFANA / f"provisioning/dashboards/{name}.yaml").read_text())["providers"]
    return str(found["options"]["path"])


def test_the_compose_file_is_valid_and_the_validator_sees_a_wrong_key() -> None:
    vendored = files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
    schema = json.loads(vendored.read_text())
    jsonschema.validate(COMPOSE, schema)
    wrong = copy.deepcopy(COMPOSE)
    wrong["services"]["ray-head"]["healtcheck"] = {}
    with pytest.raises(jsonschema.ValidationError, match="healtcheck"):
        jsonschema.validate(wrong, schema)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_container_is_limited_writes_only_where_it_may_and_holds_secrets_in_files(name: str) -> None:
    service = SERVICES[name]
    assert service.get("mem_limit")
    assert service.get("read_only") is True
    assert service.get("cap_drop") == ["ALL"]
    assert service.get("security_opt") == ["no-new-privileges:true"]
    assert set(service.get("logging", {}).get("options", {})) == {"max-size", "max-file"}
    assert service.get("networks")
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    secret = {key: value for key, value in service.get("environment", {}).items() if SUSPICIOUS.search(key)}
    assert [key for key in secret if not key.endswith(("_FILE", "_PATH"))] == []  # a name that ends so is a path
    assert all(value.startswith("/run/secrets/") for value in secret.values())


def test_no_setting_is_a_secret_and_each_is_in_the_example() -> None:
    assert {name for name in SETTINGS if SUSPICIOUS.search(name)} == {"SECRETS"}  # a folder
    lines = (ROOT / ".env.example").read_text().splitlines()
    assert set(SETTINGS) == {line.split("=")[0] for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize("name", ["RAY_WORKER", "RAY_GPU_WORKER"])
def test_ray_plans_with_less_memory_than_its_containers_have(name: str) -> None:
    """The object store is part of a container's memory."""
    command = SERVICES[name.lower().replace("_", "-")]["command"]
    assert f"--memory=${{{name}_MEMORY:-{SETTINGS[f'{name}_MEMORY']}}}" in command
    [store] = [int(word.partition("=")[2]) for word in command if word.startswith("--object-store-memory=")]
    assert int(SETTINGS[f"{name}_MEMORY"]) + store < int(SETTINGS[f"{name}_LIMIT"])


def test_each_secret_is_a_file_that_the_script_makes_and_a_container_mounts(tmp_path: Path) -> None:
    def make() -> dict[str, str]:
        command = [sys.executable, ROOT / "deployments/docker/make_secrets.py", tmp_path / "secrets"]
        subprocess.run(command, check=True)
        return {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}

    made, declared = make(), COMPOSE["secrets"]
    assert {Path(secret["file"]).name for secret in declared.values()} <= set(made)
    assert all(secret["file"].startswith("${SECRETS:-./secrets}/") for secret in declared.values())
    assert set().union(*map(mounted, SERVICES.values())) == set(declared)
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    server, client = tomllib.loads(made["prefect-server.toml"]), tomllib.loads(made["prefect-client.toml"])
    assert server["server"]["api"]["auth_string"] == f"overnight:{made['prefect-password']}"
    assert client["profiles"]["overnight"] == {"PREFECT_API_AUTH_STRING": f"overnight:{made['prefect-password']}"}
    assert server["server"]["database"]["password"] == made["postgres-password"]
    redis = SERVICES["redis-exporter"]["environment"]["REDIS_ADDR"]
    assert json.loads(made["redis-exporter.json"]) == {redis: made["redis-password"]}
    # only the bucket is open to the keys of the nodes
    users = json.loads(made["store-identities.json"])["identities"]
    rights = {user["name"]: user["actions"] for user in users}
    bucket = COMPOSE["x-node"]["environment"]["OVERNIGHT_BUCKET"]
    assert all(right.endswith(f":{bucket}") for actions in rights.values() for right in actions)
    assert not any("Admin" in right for right in rights["overnight"])
    keys = configparser.ConfigParser()
    keys.read_string(made["store-credentials"])
    assert keys["default"]["aws_access_key_id"] == "overnight"
    assert [name for name in SERVICES if "store-setup-credentials" in mounted(SERVICES[name])] == ["prepare"]
    (tmp_path / "secrets/ray-token").unlink()
    again = make()
    assert {name for name in made if again[name] != made[name]} == {"ray-token"}


def test_databases_and_the_store_are_reached_only_from_where_they_are_needed() -> None:
    assert COMPOSE["networks"]["database"] == {"internal": True}
    others = [network for name, network in COMPOSE["networks"].items() if name != "database"]
    assert all(network == {"driver_opts": {"isolate": "true"}} for network in others)
    prefect, exporters = {"prefect-server", "prefect-services"}, {name for name in SERVICES if "exporter" in name}
    assert {"postgres", "redis"} <= MEMBERS["database"] <= {"postgres", "redis", "migrate", *prefect, *exporters}
    assert MEMBERS["store"] == {"store", "prepare", "overnight-metrics", "overnight-site", *NODES}
    assert MEMBERS["metrics"] >= {"store", "prometheus"}
    assert MEMBERS["panels"] == {"ray-head", "grafana"}
    assert MEMBERS["work"] - {"prometheus", "overnight-metrics"} == prefect | NODES
    assert "grafana" not in MEMBERS["work"] | MEMBERS["store"] | MEMBERS["database"]
    assert [len(SERVICES[alone]["networks"]) for alone in ("postgres", "redis")] == [1, 1]


def test_the_head_has_an_address_that_every_node_reaches() -> None:
    """Its networks are more than those of the nodes, and Ray by itself takes an address in any of them."""
    shell, option, script, *arguments = SERVICES["ray-head"]["command"]
    [alias] = SERVICES["ray-head"]["networks"]["work"]["aliases"]
    finds = f'getent() {{ test "$*" = "hosts {alias}" && echo "10.0.0.2      {alias}"; }}\n'
    command = [shell, option, finds + script.replace("$$", "$"), arguments[0], "echo", *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ray start --head ")
    assert done.stdout.endswith(" --node-ip-address=10.0.0.2\n")


def test_the_prefect_api_needs_a_login_and_names_the_pages_that_may_ask_it() -> None:
    server = SERVICES["prefect-server"]
    assert {"source": "prefect-server", "target": "/app/prefect.toml"} in server["secrets"]
    assert server["environment"]["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] == "true"
    assert "*" not in server["environment"]["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"]


def test_the_site_reads_the_bucket_alone_and_the_computer_reaches_it_at_its_port() -> None:
    site = SERVICES["overnight-site"]
    arguments = main.commands["site"].make_context("site", site["command"][2:]).params
    assert arguments["folder"] == f"s3://{site['environment']['OVERNIGHT_BUCKET']}"
    assert arguments["host"] == "0.0.0.0"
    assert site["ports"] == [f"127.0.0.1:${{SITE_PORT:-4280}}:{arguments['port']}"]
    assert "prefect-client" in mounted(site)  # its login


def test_every_image_is_listed_once_with_its_version_and_pinned_by_its_digest() -> None:
    listed = COMPOSE["x-images"]
    used = {service["image"] for service in SERVICES.values()}
    assert used == {*listed.values(), "overnight:0.1.0"} - {listed["python"]}
    assert all(re.fullmatch(r"[\w./-]+:v?\d[\w.-]+(@sha256:[0-9a-f]{64})?", image) for image in listed.values())
    dockerfile = (ROOT / "deployments/docker/Dockerfile").read_text()
    assert f"ARG PYTHON_IMAGE={listed['python'].partition('@')[0]}\n" in dockerfile
    pinned = runpy.run_path(str(ROOT / "deployments/docker/pin_images.py"))["pinned"]
    first = pinned(TEXT, lambda image: "sha256:" + "a" * 64)
    assert pinned(first, lambda image: "sha256:" + "b" * 64) == first.replace("a" * 64, "b" * 64)
    found = yaml.safe_load(first)
    assert all(image.endswith("@sha256:" + "a" * 64) for image in found["x-images"].values())
    assert found["services"]["redis"]["image"] == found["x-images"]["redis"]


def test_prometheus_looks_at_each_service_once_at_its_port_and_misses_each_that_is_gone() -> None:
    looked_at = {name: found["dns_sd_configs"][0] for name, found in SCRAPES.items() if "dns_sd_configs" in found}
    assert looked_at.keys() == SCRAPES.keys() - {"prometheus"}
    assert {name for found in looked_at.values() for name in found["names"]} <= set(SERVICES)
    exporting = {name for name in SERVICES if "--metrics-export-port=8090" in SERVICES[name].get("command", [])}
    assert set(looked_at["ray"]["names"]) == exporting | {"prefect-worker"}
    assert "--metrics-export-port=8090" in (ROOT / "deployments/docker/worker.sh").read_text()
    ports = {name: found["port"] for name, found in looked_at.items()}
    command = main.commands["metrics"].make_context("metrics", SERVICES["overnight-metrics"]["command"][2:])
    assert (ports["ray"], ports["prefect"], ports["overnight"]) == (8090, 4200, command.params["port"])
    assert f"-metricsPort={ports['store']}" in SERVICES["store"]["command"]
    login = SCRAPES["prefect"]["basic_auth"]
    assert login == {"username": "overnight", "password_file": "/run/secrets/prefect-password"}
    assert "prefect-password" in SERVICES["prometheus"]["secrets"]
    [missing] = [rule for rule in RULES if rule["alert"] == "TargetMissing"]
    assert set(re.findall(r'absent\(up{job="([a-z]+)"}\)', missing["expr"])) == set(looked_at)
    # A name has an address in each network that two containers share, and Prometheus scrapes every address.
    seen = set(SERVICES["prometheus"]["networks"])
    shared = {name: seen & set(service["networks"]) for name, service in SERVICES.items() if name != "prometheus"}
    assert {name: networks for name, networks in shared.items() if len(networks) > 1} == {}


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: Debian's package prometheus has it")
@pytest.mark.parametrize("arguments", ["check config prometheus.yml", "test rules alerts-test.yml"])
def test_prometheus_accepts_its_configuration_and_the_alerts_fire_when_they_should(arguments: str) -> None:
    command = ["promtool", *arguments.split()]
    done = subprocess.run(command, cwd=PROMETHEUS, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_uses_metrics_that_are_served_and_has_a_test_a_severity_and_a_summary() -> None:
    tests = (PROMETHEUS / "alerts-test.yml").read_text()
    assert [rule["alert"] for rule in RULES if rule["alert"] not in tests] == []
    assert {rule["labels"]["severity"] for rule in RULES} <= {"warning", "critical"}
    assert all(rule["annotations"]["summary"] for rule in RULES)
    assert set(re.findall(r"overnight_(?:partition|job|workers|runs)_[a-z_]+", ALERTS)) <= metric_names()


def test_prometheus_and_grafana_find_their_files_where_compose_puts_them() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert "./deployments/prometheus:/etc/prometheus:ro" in SERVICES["prometheus"]["volumes"]
    assert "--config.file=/etc/prometheus/prometheus.yml" in SERVICES["prometheus"]["command"]
    assert all((PROMETHEUS / name).is_file() for name in config["rule_files"])
    mounts = SERVICES["grafana"]["volumes"]
    assert f"./deployments/grafana/dashboards:{provider('overnight')}:ro" in mounts
    kept = set((ROOT / ".dockerignore").read_text().splitlines())
    assert {"!deployments/automations/*.yaml", "!deployments/jobs/*", "!deployments/prefect.yaml"} <= kept
    assert {"!deployments/docker/services_health.py", "!deployments/docker/worker.sh"} <= kept


def test_the_dashboard_shows_the_partitions_with_metrics_that_are_served_and_no_panel_covers_another() -> None:
    assert {panel["datasource"]["uid"] for panel in PANELS} == {DATA_SOURCE["uid"]}
    assert DATA_SOURCE["url"].removeprefix("http://").split(":")[0] in SERVICES
    asked = {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in PANELS}
    assert all(expression for expressions in asked.values() for expression in expressions)
    names = set(re.findall(r"overnight_[a-z_]+", str(asked)))
    assert {f"overnight_partition_{what}" for what in ("status", "late", "rows_quarantined")} <= names
    assert names <= metric_names()
    assert "by (job, partition" in str(asked["Partitions, by job"])
    covered = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(covered) == len(set(covered))
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_rays_dashboard_knows_prometheus_and_grafana_and_grafana_reads_rays_dashboards() -> None:
    head, grafana = SERVICES["ray-head"], SERVICES["grafana"]
    set_to = head["environment"]
    for name, port in (("RAY_PROMETHEUS_HOST", 9090), ("RAY_GRAFANA_HOST", 3000)):
        assert urlsplit(set_to[name]).hostname in SERVICES
        assert urlsplit(set_to[name]).port == port
    assert set_to["RAY_PROMETHEUS_NAME"] == DATA_SOURCE["name"]
    assert any(port.startswith(set_to["RAY_GRAFANA_IFRAME_HOST"].removeprefix("http://")) for port in grafana["ports"])
    assert grafana["environment"]["GF_SECURITY_ALLOW_EMBEDDING"] == "true"
    folder = set_to["RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR"]
    assert f"ray-dashboards:{folder}" in head["volumes"]
    assert f"ray-dashboards:{provider('ray')}:ro" in grafana["volumes"]
    owned = re.search(r"chown overnight:overnight (.*)", (ROOT / "deployments/docker/Dockerfile").read_text())
    assert owned
    assert folder in owned[1].split()
