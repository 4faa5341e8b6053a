"""The group of options ``fair_share``: the fair order of gangs of equal priority."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel
from pydantic_settings import NoDecode

from allaboard.model.pairs import pairs_in


class FairShareOptions(BaseModel):
    """Options on the fair order: among gangs of equal priority, the tenant that has used less of the cluster goes first."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    enabled: bool = Field(
        False, description="Whether gangs of equal priority are ordered by their tenants' shares of the cluster, before age."
    )
    by: str = Field(
        "",
        max_length=316,
        description="Label of pods whose value names the tenant; empty for the namespace. A user that writes the label chooses the"
        " tenant, so use a label that only an admission policy sets.",
    )
    half_life_seconds: float = Field(
        86_400.0,
        ge=0,
        le=365 * 86_400,
        description="Seconds after which earlier use counts for half; 0 to count only what is used now.",
    )
    weights: Annotated[dict[str, Annotated[float, Field(gt=0, le=1_000_000)]], NoDecode] = Field(
        {}, description="The weight of each tenant, such as `{research: 2}`; 1 for other tenants. A share is divided by the weight."
    )

    _pairs = field_validator("weights", mode="before")(pairs_in)
