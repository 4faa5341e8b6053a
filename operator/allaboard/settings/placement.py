"""The options ``search`` and ``packing``: how a placement is searched, and how full nodes are to be taken for."""

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
    """The genetic search. More generations find better packings and take longer; the result never depends on the clock."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    preset: Literal["", "seed"] = Field(
        "",
        exclude=True,
        description="`seed`: 1000 generations of 50, mutation 0.2, crossover 0.8, as the first genetic scheduler had it; in a short search"
        " as many as it may take, which is reported.",
    )
    generations: int = Field(
        60,
        ge=1,
        le=10_000,
        description="Generations at most. While a member that must start has no node: 5 before the exact solver is asked, and as many as"
        " this after it; eleven times as many as this where the solver isn't asked.",
    )
    min_generations: int = Field(1, ge=0, le=10_000, description="Generations at least, unless the best possible is reached.")
    population_size: int = Field(48, ge=4, le=1_000, description="Placements kept from one generation to the next.")
    mutation_rate: float = Field(0.5, ge=0, le=1, description="Share of children that are ruined in part and repaired.")
    crossover_rate: float = Field(0.8, ge=0, le=1, description="Share of children that mix the nodes of two parents.")
    patience: int = Field(
        5,
        ge=1,
        le=10_000,
        description="Generations without gain after which another one doesn't pay; a fifth of it without domains and shared GPUs.",
    )
    branches: int = Field(
        200, ge=0, le=100_000, description="Work of the exact solver, asked where no greedy rule seats a gang: branches; 0 asks it never."
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_preset(cls, stated: object) -> object:
        """What is stated beside a preset wins over it."""
        if not isinstance(stated, Mapping) or (preset := _PRESETS.get(str(stated.get("preset")))) is None:
            return stated
        names = {to_camel(name): name for name in cls.model_fields}
        return dict(preset) | {names.get(str(name), name): value for name, value in stated.items()}


class PackingOptions(BaseModel):
    """How full a node is to be taken for where pods are packed: kube-scheduler's RequestedToCapacityRatio, in its own form or in ours."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    shape: Pairs = Field(
        {},
        description="Scores (0 to 10) of utilizations in percent; none means 0=0,100=10: the fuller the better; fragmentation: best fit.",
    )
    resources: Pairs = Field(
        {}, description="Weights (1 to 100) of resources; none means cpu 1, memory 1, each GPU kind 5; best fit for fragmentation."
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
        """The same as the search knows it."""
        return packing_from(self.shape, self.resources)
