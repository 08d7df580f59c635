"""Freeze the parameter `job` of a deployment: the form shows it, and form and server accept no other value.

Prefect has `freeze` for deployments from Python, but not for deployments from a prefect.yaml.
"""

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.responses import DeploymentResponse


def freeze_job(client: SyncPrefectClient, deployment: DeploymentResponse) -> None:
    """Change the deployment on the server, so that its parameter `job` accepts only the job file that it has now.

    Do nothing if the deployment has no value for `job`, or the parameter is frozen already.
    """
    schema = deployment.parameter_openapi_schema or {}
    own, found = deployment.parameters.get("job"), schema.get("properties", {}).get("job")
    if own is None or found is None or found.get("enum") == [own]:
        return
    frozen = {**found, "enum": [own], "readOnly": True}
    changed = {**schema, "properties": {**schema["properties"], "job": frozen}}
    client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=changed))
