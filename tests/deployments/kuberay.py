"""The schemas of KubeRay's objects, without their pods: `kuberay-1.7.0.json`, from KubeRay's Helm chart (Apache-2.0).

`python -m tests.deployments.kuberay CHECKOUT` makes that file from https://github.com/ray-project/kuberay at its tag
v1.7.0. As the API server does with `--validate=strict`, the schemas refuse fields that they do not name. The parts of
`OPEN` may have any content: the tests check templates of pods with Kubernetes' own schemas.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml

FILE = Path(__file__).with_name("kuberay-1.7.0.json")
CHART = "helm-chart/kuberay-operator/crds"
KINDS = {"RayCluster": "rayclusters", "RayJob": "rayjobs", "RayCronJob": "raycronjobs"}
INNER = {"rayClusterSpec": "RayCluster", "jobTemplate": "RayJob"}  # fields that hold the spec of another kind
OPEN = {
    *("template", "submitterPodTemplate", "resources", "securityContext", "env", "envFrom", "volumeMounts"),
    *("headService", "networkPolicy", "storage", "tlsOptions", "valueFrom"),
    *INNER,
}
KEPT = ("type", "enum", "minimum", "maximum", "minLength", "minItems", "required", "x-kubernetes-int-or-string")


def reduced(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a schema that the tests need, without fields that are not named."""
    found = {key: schema[key] for key in KEPT if key in schema}
    if found.pop("x-kubernetes-int-or-string", False):
        found["type"] = ["integer", "string"]
    if "items" in schema:
        found["items"] = reduced(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = reduced(schema["additionalProperties"])
    if "properties" in schema:
        inner = {name: {} if name in OPEN else reduced(field) for name, field in schema["properties"].items()}
        found |= {"properties": inner, "additionalProperties": False}
    return found


def validate(kind: str, spec: dict[str, Any]) -> None:
    """Raise `jsonschema.ValidationError` if KubeRay's schema refuses the spec of an object of this kind."""
    jsonschema.validate(spec, json.loads(FILE.read_text())[kind])
    for field in INNER.keys() & spec.keys():
        validate(INNER[field], spec[field])


def main(checkout: Path) -> None:
    """Write the file from a checkout of KubeRay."""
    schemas = {}
    for kind, plural in KINDS.items():
        versions = yaml.safe_load((checkout / CHART / f"ray.io_{plural}.yaml").read_text())["spec"]["versions"]
        [v1] = [version for version in versions if version["name"] == "v1"]
        schemas[kind] = reduced(v1["schema"]["openAPIV3Schema"]["properties"]["spec"])
    FILE.write_text(json.dumps(schemas, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
