"""The group of options ``gpu``: which GPU cards may be used, and how cards are scored."""

from dataclasses import fields
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic_settings import NoDecode

from allaboard.model.errors import shown
from allaboard.model.gpu_inventory import APPLICATION_ERRORS, GpuPolicy
from allaboard.model.gpumodels import Attributes
from allaboard.model.gpunames import expression
from allaboard.model.gpuscore import ScoreWeights
from allaboard.model.pairs import pairs_in
from allaboard.settings.pairs import Pairs

_Numbers = Annotated[tuple[Annotated[int, Field(ge=0, le=1_000_000)], ...], NoDecode]


class GpuModelOptions(BaseModel):
    """Attributes of a GPU model, for cards without metrics: memory in MiB, bandwidth in GB/s, numbers of units; None where unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    memory: float | None = Field(None, ge=0)
    multiprocessors: float | None = Field(None, ge=0)
    decoders: float | None = Field(None, ge=0)
    encoders: float | None = Field(None, ge=0)
    bandwidth: float | None = Field(None, ge=0)


class GpuOptions(BaseModel):
    """Options on GPU cards: which cards may be used, and how labels and metrics of cards are scored."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    charged_by_label: bool = Field(
        True,
        description="Whether a pod is charged for the GPUs that its label or annotation `gpu-number` asks for, if they are more than it"
        " requests. If false, the pod is charged for its requests, and only needs a node with that many GPUs. A change takes effect at the"
        " next start.",
    )
    unknown_memory: Literal["closed", "open"] = Field(
        "closed",
        description="A card of unknown memory counts as too small for pods that ask for memory (`closed`), or as large enough (`open`).",
    )
    unhealthy: Literal["exclude", "ignore"] = Field(
        "exclude",
        description="Whether cards with an XID error, or with memory rows that couldn't be remapped, are left out (`exclude`) or used like"
        " other cards (`ignore`).",
    )
    application_errors: _Numbers = Field(
        APPLICATION_ERRORS, description="XID numbers that are errors of applications, and don't make a card unhealthy."
    )
    aliases: Pairs = Field(
        {},
        description="Own names for GPU models, each with a regular expression for the model's name (big=H.00). Pods may use them in"
        " `gpu-model`.",
    )
    models: dict[str, GpuModelOptions] = Field(
        {},
        description="Attributes of GPU models, by a regular expression for the model's name: memory (MiB), multiprocessors, decoders,"
        " encoders and bandwidth (GB/s). They win over the built-in table of models.",
    )
    weight: float = Field(
        1.0, ge=0, le=1_000_000, description="Factor on the weight that the objective gives to the score of GPUs; 0 switches the score off."
    )
    static_weight: float = Field(
        1.0, ge=0, le=1_000, description="Weight of the attributes of cards (such as memory) in the score of GPUs."
    )
    dynamic_weight: float = Field(2.0, ge=0, le=1_000, description="Weight of the load of cards in the score of GPUs; less load is better.")
    memory_weight: float = Field(2.0, ge=0, le=1_000, description="Weight of the memory among the attributes of cards.")
    multiprocessors_weight: float = Field(2.0, ge=0, le=1_000, description="Weight of the multiprocessors among the attributes of cards.")
    decoders_weight: float = Field(1.0, ge=0, le=1_000, description="Weight of the decoders (NVDEC) among the attributes of cards.")
    encoders_weight: float = Field(1.0, ge=0, le=1_000, description="Weight of the encoders (NVENC) among the attributes of cards.")
    bandwidth_weight: float = Field(2.0, ge=0, le=1_000, description="Weight of the memory bandwidth among the attributes of cards.")
    free_memory_weight: float = Field(2.0, ge=0, le=1_000, description="Weight of the free memory in the load of cards; more is better.")
    power_weight: float = Field(1.0, ge=0, le=1_000, description="Weight of the power draw in the load of cards; less is better.")
    encoder_weight: float = Field(1.0, ge=0, le=1_000, description="Weight of the use of encoders in the load of cards; less is better.")
    decoder_weight: float = Field(1.0, ge=0, le=1_000, description="Weight of the use of decoders in the load of cards; less is better.")
    utilization_weight: float = Field(0.0, ge=0, le=1_000, description="Weight of the utilization in the load of cards; less is better.")
    temperature_weight: float = Field(0.0, ge=0, le=1_000, description="Weight of the temperature in the load of cards; less is better.")

    @field_validator("application_errors", mode="before")
    @classmethod
    def _numbers(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(number.strip() for number in value.split(",") if number.strip())
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list of numbers, not {shown(value)}")
        return value

    _pairs = field_validator("aliases", mode="before")(pairs_in)

    @model_validator(mode="after")
    def _check(self) -> Self:
        aliases = [(f"gpu.aliases.{name}", pattern) for name, pattern in self.aliases.items()]
        for option, pattern in (*aliases, *(("gpu.models", pattern) for pattern in self.models)):
            try:
                expression(pattern)
            except ValueError as error:
                raise ValueError(f"{option}: {error}") from None
        return self

    @cached_property
    def policy(self) -> GpuPolicy:
        """The options as the cluster view uses them."""
        return GpuPolicy(
            unknown_fits=self.unknown_memory == "open",
            excludes_unhealthy=self.unhealthy == "exclude",
            application_errors=self.application_errors,
            aliases=self.aliases,
            models={pattern: Attributes(**model.model_dump(exclude_none=True)) for pattern, model in self.models.items()},
            weights=ScoreWeights(
                **{each.name: getattr(self, f"{each.name}_weight") for each in fields(ScoreWeights)},
            ),
            weight=self.weight,
        )
