"""The groups of options ``search`` and ``packing``: how placements are searched, and how the utilization of nodes is scored."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from allaboard.model.packing import Packing, packing_from
from allaboard.model.pairs import pairs_by
from allaboard.settings.pairs import Pairs

_PRESETS: Mapping[str, Mapping[str, object]] = {
    "seed": {
        "generations": 1000,
        "min_generations": 1000,
        "population_size": 50,
        "mutation_rate": 0.2,
        "crossover_rate": 0.8,
        "patience": 1000,
    }
}


class SearchOptions(BaseModel):
    """Options of the genetic search. More generations find better placements and take longer.

    The result doesn't depend on the clock, unless a search reaches its time limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    preset: Literal["", "seed"] = Field(
        "",
        exclude=True,
        description="`seed` sets 1000 generations of 50 placements, mutation 0.2 and crossover 0.8, as the first genetic scheduler had"
        " them. A short search does as many generations as its effort allows, and reports their number. Empty for no preset.",
    )
    generations: int = Field(
        60,
        ge=1,
        le=10_000,
        description="Most generations of a search. While a required member has no node, the search does 5 generations before the exact"
        " solver runs, and up to this number after it; up to eleven times this number if the solver doesn't run.",
    )
    min_generations: int = Field(
        1, ge=0, le=10_000, description="Fewest generations, unless the search reaches the best possible placement."
    )
    population_size: int = Field(48, ge=4, le=1_000, description="Number of placements that each generation keeps.")
    mutation_rate: float = Field(
        0.5, ge=0, le=1, description="Share (0 to 1) of new placements from which some pods are removed and assigned again."
    )
    crossover_rate: float = Field(0.8, ge=0, le=1, description="Share (0 to 1) of new placements that combine two others.")
    patience: int = Field(
        5,
        ge=1,
        le=10_000,
        description="The search stops after this many generations without a better placement. If neither topology domains nor shared GPUs"
        " matter, a fifth of it is enough.",
    )
    branches: int = Field(
        200,
        ge=0,
        le=100_000,
        description="Most branches of the exact solver, which runs if the heuristics don't place a gang; 0 switches the solver off.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_preset(cls, stated: object) -> object:
        """Add the options of the preset. Options that are stated win over the preset."""
        if not isinstance(stated, Mapping) or (preset := _PRESETS.get(str(stated.get("preset")))) is None:
            return stated
        names = {to_camel(name): name for name in cls.model_fields}
        return dict(preset) | {names.get(str(name), name): value for name, value in stated.items()}


class PackingOptions(BaseModel):
    """Options of kube-scheduler's RequestedToCapacityRatio: how the utilization of a node is scored.

    The form in which kube-scheduler states them is accepted, too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    shape: Pairs = Field(
        {},
        description="Scores (0 to 10) by utilization in percent. Empty means 0=0,100=10 (fuller nodes are better), and best fit for the"
        " objective `fragmentation`.",
    )
    resources: Pairs = Field(
        {},
        description="Weights (1 to 100) by resource. Empty means cpu 1, memory 1 and each kind of GPU 5, and best fit for the objective"
        " `fragmentation`.",
    )

    @field_validator("shape", mode="before")
    @classmethod
    def _points(cls, value: object) -> object:
        return pairs_by(value, "utilization", "score")

    @field_validator("resources", mode="before")
    @classmethod
    def _weights(cls, value: object) -> object:
        return pairs_by(value, "name", "weight")

    @model_validator(mode="after")
    def _check(self) -> Self:
        packing_from(self.shape, self.resources)
        return self

    @property
    def parsed(self) -> Packing:
        """The options as the search uses them."""
        return packing_from(self.shape, self.resources)
