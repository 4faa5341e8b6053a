"""The options ``strategy_options``: what strategies are made with."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field


class BestFitOptions(BaseModel):
    """What the strategy `bestfit` looks at."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    most_used: bool = Field(False, description="`bestfit` takes the node of which most is in use, instead of where least is left over.")


class RandomOptions(BaseModel):
    """How the strategy `random` draws."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, ge=0, le=2**32 - 1, description="What `random` draws by, beside who is to be seated.")


class StrategyOptions(BaseModel):
    """What strategies are made with: the shipped ones' options, and plug-ins' by their names, which their packages check."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, dict[str, str | int | float | bool]] = Field(init=False)

    bestfit: BestFitOptions = BestFitOptions()
    random: RandomOptions = RandomOptions()

    @property
    def by_name(self) -> Mapping[str, Mapping[str, object]]:
        """The same as keyword arguments, by the strategy's name."""
        arguments: Mapping[str, Mapping[str, object]] = self.model_dump()
        return arguments
