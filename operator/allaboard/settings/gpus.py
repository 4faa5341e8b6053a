"""The options ``gpu``: what is made of labels and measurements of GPUs."""

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
    """What a card of one model has, where nobody measures it."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    memory: float | None = Field(None, ge=0)
    multiprocessors: float | None = Field(None, ge=0)
    decoders: float | None = Field(None, ge=0)
    encoders: float | None = Field(None, ge=0)
    bandwidth: float | None = Field(None, ge=0)


class GpuOptions(BaseModel):
    """What is made of labels and measurements of GPUs: which cards are taken, and how good they are."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    charged_by_label: bool = Field(
        True,
        description="Whether a pod takes as many GPUs as `gpu-number` says where that is more than it requests; or only needs a node with"
        " as many. A change counts from the next start.",
    )
    unknown_memory: Literal["closed", "open"] = Field(
        "closed", description="Whether a card of which no memory is known has too little of it for who asks (`closed`), or enough (`open`)."
    )
    unhealthy: Literal["exclude", "ignore"] = Field(
        "exclude", description="Whether cards with an XID error or rows of memory that couldn't be remapped are none, or as others."
    )
    application_errors: _Numbers = Field(
        APPLICATION_ERRORS, description="XIDs that are applications' own errors, and don't make a card unhealthy."
    )
    aliases: Pairs = Field(
        {}, description="Other names of cards (big=H.00), each with the expression, as in `gpu-model`, for what they are called."
    )
    models: dict[str, GpuModelOptions] = Field(
        {},
        description="What cards have by an expression for what they are called: memory (MiB), multiprocessors, decoders, encoders and"
        " bandwidth (GB/s); before those that are known.",
    )
    weight: float = Field(1.0, ge=0, le=1_000_000, description="How much better cards count, times what the objective has; 0: not at all.")
    static_weight: float = Field(1.0, ge=0, le=1_000, description="What cards have, in their score.")
    dynamic_weight: float = Field(2.0, ge=0, le=1_000, description="How little is going on on them, in their score.")
    memory_weight: float = Field(2.0, ge=0, le=1_000, description="Memory, in what they have.")
    multiprocessors_weight: float = Field(2.0, ge=0, le=1_000, description="Multiprocessors, in what they have.")
    decoders_weight: float = Field(1.0, ge=0, le=1_000, description="Decoders (NVDEC), in what they have.")
    encoders_weight: float = Field(1.0, ge=0, le=1_000, description="Encoders (NVENC), in what they have.")
    bandwidth_weight: float = Field(2.0, ge=0, le=1_000, description="Bandwidth of the memory, in what they have.")
    free_memory_weight: float = Field(2.0, ge=0, le=1_000, description="Free memory, in what is going on.")
    power_weight: float = Field(1.0, ge=0, le=1_000, description="Little power, in what is going on.")
    encoder_weight: float = Field(1.0, ge=0, le=1_000, description="Idle encoders, in what is going on.")
    decoder_weight: float = Field(1.0, ge=0, le=1_000, description="Idle decoders, in what is going on.")
    utilization_weight: float = Field(0.0, ge=0, le=1_000, description="Idle cards, in what is going on.")
    temperature_weight: float = Field(0.0, ge=0, le=1_000, description="Cool cards, in what is going on.")

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
        stated = [(f"gpu.aliases.{name}", pattern) for name, pattern in self.aliases.items()]
        for option, pattern in (*stated, *(("gpu.models", pattern) for pattern in self.models)):
            try:
                expression(pattern)
            except ValueError as error:
                raise ValueError(f"{option}: {error}") from None
        return self

    @cached_property
    def policy(self) -> GpuPolicy:
        """The same as the view of the cluster knows it."""
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
