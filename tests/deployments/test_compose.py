"""docker-compose.yml against the schema of the Compose specification, and what Prometheus and Grafana are given."""

import configparser
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
GRAFANA = ROOT / "deployments/grafana"
NETWORKS = ("database", "work", "store", "metrics", "dashboards", "panels")


def compose_schema() -> dict[str, Any]:
    """As the package check-jsonschema carries it."""
    vendored = files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
    return dict(json.loads(vendored.read_text()))


def compose_file() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


def secrets_of(service: dict[str, Any]) -> set[str]:
    """Return the names of the secrets that a service mounts."""
    return {secret["source"] if isinstance(secret, dict) else secret for secret in service.get("secrets", [])}


def test_the_compose_file_is_valid() -> None:
    jsonschema.validate(compose_file(), compose_schema())


def test_the_compose_files_validator_sees_a_wrong_key() -> None:
    wrong = compose_file()
    wrong["services"]["ray-head"]["healtcheck"] = {}
    with pytest.raises(jsonschema.ValidationError, match="healtcheck"):
        jsonschema.validate(wrong, compose_schema())


def test_ports_are_on_this_machine_alone() -> None:
    ports = [port for service in compose_file()["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 5
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", sorted(compose_file()["services"]))
def test_a_container_is_limited_and_writes_only_where_it_may(name: str) -> None:
    service = compose_file()["services"][name]
    assert service.get("mem_limit")
    assert service.get("read_only") is True
    assert service.get("cap_drop") == ["ALL"]
    assert service.get("security_opt") == ["no-new-privileges:true"]
    assert set(service.get("logging", {}).get("options", {})) == {"max-size", "max-file"}
    assert service.get("networks")


def test_ray_plans_with_less_memory_than_its_containers_have() -> None:
    """The object store is part of a container's memory."""
    defaults = dict(re.findall(r"\$\{([A-Z_0-9]+):-([^}]+)\}", (ROOT / "docker-compose.yml").read_text()))
    for name in ("RAY_WORKER", "RAY_GPU_WORKER"):
        command = compose_file()["services"][name.lower().replace("_", "-")]["command"]
        assert f"--memory=${{{name}_MEMORY:-{defaults[f'{name}_MEMORY']}}}" in command
        [store] = [int(word.partition("=")[2]) for word in command if word.startswith("--object-store-memory=")]
        assert int(defaults[f"{name}_MEMORY"]) + store < int(defaults[f"{name}_LIMIT"])


def test_no_secret_is_in_an_environment_or_in_a_setting() -> None:
    """A name that ends so holds the path of a file."""
    suspicious = re.compile(r"PASSWORD|TOKEN|SECRET|AUTH_STRING|ACCESS_KEY|CREDENTIALS|API_KEY")
    for service in compose_file()["services"].values():
        for name, value in service.get("environment", {}).items():
            if suspicious.search(name):
                assert name.endswith(("_FILE", "_PATH")), name
                assert value.startswith("/run/secrets/")
    settings = set(re.findall(r"\$\{([A-Z_0-9]+)", (ROOT / "docker-compose.yml").read_text()))
    assert {name for name in settings if suspicious.search(name)} == {"SECRETS"}  # a folder


def test_each_secret_is_a_file_that_the_script_makes_and_a_container_mounts(tmp_path: Path) -> None:
    make_secrets = ROOT / "deployments/docker/make_secrets.py"
    subprocess.run([sys.executable, make_secrets, tmp_path / "secrets"], check=True)
    made = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    declared = compose_file()["secrets"]
    assert {Path(secret["file"]).name for secret in declared.values()} <= set(made)
    assert all(secret["file"].startswith("${SECRETS:-./secrets}/") for secret in declared.values())
    assert set().union(*map(secrets_of, compose_file()["services"].values())) == set(declared)
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    server, client = tomllib.loads(made["prefect-server.toml"]), tomllib.loads(made["prefect-client.toml"])
    assert server["server"]["api"]["auth_string"] == f"overnight:{made['prefect-password']}"
    assert client["profiles"]["overnight"] == {"PREFECT_API_AUTH_STRING": f"overnight:{made['prefect-password']}"}
    assert server["server"]["database"]["password"] == made["postgres-password"]
    redis = compose_file()["services"]["redis-exporter"]["environment"]["REDIS_ADDR"]
    assert json.loads(made["redis-exporter.json"]) == {redis: made["redis-password"]}
    (tmp_path / "secrets/ray-token").unlink()
    subprocess.run([sys.executable, make_secrets, tmp_path / "secrets"], check=True)
    again = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    assert {name for name in made if again[name] != made[name]} == {"ray-token"}


def test_only_the_bucket_is_open_to_the_keys_of_the_nodes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "deployments/docker/make_secrets.py", tmp_path / "secrets"], check=True)
    users = json.loads((tmp_path / "secrets/store-identities.json").read_text())["identities"]
    rights = {user["name"]: user["actions"] for user in users}
    bucket = compose_file()["x-node"]["environment"]["OVERNIGHT_BUCKET"]
    assert all(right.endswith(f":{bucket}") for actions in rights.values() for right in actions)
    assert not any("Admin" in right for right in rights["overnight"])
    keys = configparser.ConfigParser()
    keys.read(tmp_path / "secrets/store-credentials")
    assert keys["default"]["aws_access_key_id"] == "overnight"
    services = compose_file()["services"]
    assert [name for name in services if "store-setup-credentials" in secrets_of(services[name])] == ["prepare"]


def test_databases_and_the_store_are_reached_only_from_where_they_are_needed() -> None:
    services = compose_file()["services"]
    members = {network: {name for name in services if network in services[name]["networks"]} for network in NETWORKS}
    nodes = {"prefect-worker", "ray-head", "ray-worker", "ray-gpu-worker"}
    networks = compose_file()["networks"]
    assert networks.pop("database") == {"internal": True}
    assert all(network == {"driver_opts": {"isolate": "true"}} for network in networks.values())
    assert (
        {"postgres", "redis"}
        <= members["database"]
        <= {
            *("postgres", "redis", "migrate", "prefect-server", "prefect-services"),
            *(name for name in services if name.endswith("exporter")),
        }
    )
    assert members["store"] == {"store", "prepare", "overnight-metrics", *nodes}
    assert members["metrics"] >= {"store", "prometheus"}
    assert members["panels"] == {"ray-head", "grafana"}
    assert members["work"] - {"prometheus", "overnight-metrics"} == {"prefect-server", "prefect-services", *nodes}
    assert "grafana" not in members["work"] | members["store"] | members["database"]
    for alone in ("postgres", "redis"):
        assert len(services[alone]["networks"]) == 1


def test_the_head_has_an_address_that_every_node_reaches() -> None:
    """Its networks are more than those of the nodes, and Ray by itself takes an address in any of them."""
    services = compose_file()["services"]
    shell, option, script, *arguments = services["ray-head"]["command"]
    command = [shell, option, script.replace("$$", "$"), arguments[0], "echo", *arguments[1:]]
    [alias] = services["ray-head"]["networks"]["work"]["aliases"]
    finds = f'getent() {{ test "$*" = "hosts {alias}" && echo "10.0.0.2      {alias}"; }}\n'
    done = subprocess.run([*command[:2], finds + command[2], *command[3:]], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ray start --head ")
    assert done.stdout.endswith(" --node-ip-address=10.0.0.2\n")
    assert all("work" in services[name]["networks"] for name in ("ray-worker", "ray-gpu-worker", "prefect-worker"))


def test_prometheus_finds_each_container_at_one_address() -> None:
    """A name has an address in each network that two containers share, and Prometheus scrapes every address."""
    services = compose_file()["services"]
    seen = set(services["prometheus"]["networks"])
    shared = {name: seen & set(service["networks"]) for name, service in services.items() if name != "prometheus"}
    assert {name: networks for name, networks in shared.items() if len(networks) > 1} == {}


def test_the_prefect_api_needs_a_login_and_names_the_pages_that_may_ask_it() -> None:
    server = compose_file()["services"]["prefect-server"]
    assert {"source": "prefect-server", "target": "/app/prefect.toml"} in server["secrets"]
    assert server["environment"]["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] == "true"
    assert "*" not in server["environment"]["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"]


def test_every_image_is_listed_once_with_its_version() -> None:
    listed = compose_file()["x-images"]
    used = {service["image"] for service in compose_file()["services"].values()}
    assert used == {*listed.values(), "overnight:0.1.0"} - {listed["python"]}
    assert all(re.fullmatch(r"[\w./-]+:v?\d[\w.-]+(@sha256:[0-9a-f]{64})?", image) for image in listed.values())
    dockerfile = (ROOT / "deployments/docker/Dockerfile").read_text()
    assert f"ARG PYTHON_IMAGE={listed['python'].partition('@')[0]}\n" in dockerfile


def test_digests_are_written_beside_the_versions_and_again_when_these_move() -> None:
    pinned = runpy.run_path(str(ROOT / "deployments/docker/pin_images.py"))["pinned"]
    text = (ROOT / "docker-compose.yml").read_text()
    first = pinned(text, lambda image: "sha256:" + "a" * 64)
    assert pinned(first, lambda image: "sha256:" + "b" * 64) == first.replace("a" * 64, "b" * 64)
    found = yaml.safe_load(first)
    assert all(image.endswith("@sha256:" + "a" * 64) for image in found["x-images"].values())
    assert found["services"]["redis"]["image"] == found["x-images"]["redis"]


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
    assert f"-metricsPort={ports['store']}" in services["store"]["command"]
    assert looked_at.keys() == scrape_configs().keys() - {"prometheus"}
    login = scrape_configs()["prefect"]["basic_auth"]
    assert login == {"username": "overnight", "password_file": "/run/secrets/prefect-password"}
    assert "prefect-password" in services["prometheus"]["secrets"]
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
    assert {"!deployments/docker/services_health.py", "!deployments/docker/worker.sh"} <= set(kept)
