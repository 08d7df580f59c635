"""The parameter `job` of a deployment: the form shows it, and neither the form nor the server accepts another one.

Prefect has `freeze` for deployments of Python, and nothing like it for those of a prefect.yaml.
"""

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.responses import DeploymentResponse


def freeze_job(client: SyncPrefectClient, deployment: DeploymentResponse) -> None:
    """Make the deployment's own job file the only value of the parameter `job`, as `freeze` does."""
    schema = deployment.parameter_openapi_schema or {}
    own, found = deployment.parameters.get("job"), schema.get("properties", {}).get("job")
    if own is None or found is None or found.get("enum") == [own]:
        return
    frozen = {**found, "enum": [own], "readOnly": True}
    changed = {**schema, "properties": {**schema["properties"], "job": frozen}}
    client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=changed))
