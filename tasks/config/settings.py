"""What every leaf is: a frozen model of its settings, tagged by `kind`."""

from pydantic import BaseModel, ConfigDict


class Leaf(BaseModel):
    """Settings of one source, step, predictor or sink. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
