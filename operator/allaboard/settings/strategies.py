"""The group of options ``strategy_options``: arguments of strategies."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field


class BestFitOptions(BaseModel):
    """Options of the strategy ``bestfit``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    most_used: bool = Field(
        False, description="Whether `bestfit` chooses the node with the most in use, instead of the node with the least left over."
    )


class RandomOptions(BaseModel):
    """Options of the strategy ``random``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the strategy `random`; the pods to place are part of the seed, too.")


class StrategyOptions(BaseModel):
    """Options of strategies by the strategy's name. A plug-in's package checks the options of its strategies."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, dict[str, str | int | float | bool]] = Field(init=False)

    bestfit: BestFitOptions = BestFitOptions()
    random: RandomOptions = RandomOptions()

    @property
    def by_name(self) -> Mapping[str, Mapping[str, object]]:
        """Keyword arguments of each strategy, by the strategy's name."""
        arguments: Mapping[str, Mapping[str, object]] = self.model_dump()
        return arguments
