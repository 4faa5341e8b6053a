"""What a kube-scheduler's configuration asks for, as far as we honour it, and under which scheduler names it is in force."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from allaboard.model.fit import FitScoring, Strategy
from allaboard.model.gang import Objective

DEFAULT_SCHEDULER = "default-scheduler"
"""Whose pods another scheduler places, unless our own configuration claims them."""


class ConfigurationError(ValueError):
    """A configuration can't be used: ``field: what is wrong with it, and what would be right``."""


@dataclass(frozen=True, slots=True)
class Profile:
    """``scheduler_name`` is empty where none is stated; ``place`` is where it stands in the file."""

    scheduler_name: str
    scoring: FitScoring
    place: str = ""

    @property
    def objective(self) -> Objective:
        """The one of ours that is nearest: what a gang may say instead of it."""
        shape = self.scoring.shape
        is_packing = self.scoring.strategy is Strategy.MOST or (shape and shape[-1][1] >= shape[0][1])
        return Objective.BINPACK if is_packing else Objective.SPREAD


@dataclass(frozen=True, slots=True)
class Foreign:
    """A kube-scheduler's configuration: its profiles, values of our options by name, and what of it isn't honoured, in words.

    ``unusable`` says of options what is wrong with their values, which matters only if nobody else sets them.
    """

    profiles: tuple[Profile, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)


NOTHING = Foreign()


@dataclass(frozen=True, slots=True)
class InForce:
    """Scheduler names that are ours, the profile of those that have one, and what was to be said about that and the file.

    ``is_stated`` is false where there is a file that states nothing; ``kubeconfig_place`` is where in it the kubeconfig in use is named.
    """

    names: tuple[str, ...]
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    is_stated: bool = True
    kubeconfig_place: str = ""


def in_force(foreign: Foreign, own: Sequence[str]) -> InForce:
    """What ``foreign`` means beside our ``own`` scheduler names, which a profile without a name is for.

    Pods of ``default-scheduler`` are left to it unless it is one of ``own``.
    """
    names, profiles, warnings = dict.fromkeys(own), {}, list(foreign.warnings)
    if DEFAULT_SCHEDULER in own:
        warnings.append(
            f"scheduler_names: kube-scheduler takes pods of {DEFAULT_SCHEDULER}, too, and one by one, so that gangs start in part, unless"
            " its own profile has another schedulerName; admission webhooks name the scheduler of pods that name none (docs/admission.md)"
        )
    for profile in foreign.profiles:
        if profile.scheduler_name == DEFAULT_SCHEDULER and DEFAULT_SCHEDULER not in own:
            warnings.append(
                f"{profile.place}: pods of {DEFAULT_SCHEDULER} are left to kube-scheduler, so that this profile isn't in force;"
                " list it in scheduler_names to take them over, or give the profile another schedulerName"
            )
        elif profile.scheduler_name:
            names[profile.scheduler_name] = None
            profiles[profile.scheduler_name] = profile
    for profile in foreign.profiles:
        if not profile.scheduler_name:
            warnings.append(
                f"{profile.place}: no schedulerName, which is {DEFAULT_SCHEDULER} for kube-scheduler, whose pods aren't taken; it is in"
                f" force for {', '.join(name for name in own if name not in profiles) or 'nobody'}"
            )
            profiles = dict.fromkeys(own, profile) | profiles
    return InForce(tuple(names), profiles, tuple(warnings))
