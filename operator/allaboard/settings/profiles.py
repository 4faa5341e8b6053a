"""A kube-scheduler's configuration as far as Allaboard honours it, and the scheduler names for which its profiles are in force."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from allaboard.model.fit import FitScoring, Strategy
from allaboard.model.gang import Objective

DEFAULT_SCHEDULER = "default-scheduler"
"""The schedulerName of pods that name none. kube-scheduler places them unless ``scheduler_names`` lists this name."""


class ConfigurationError(ValueError):
    """A configuration that can't be used. The message is ``field: mistake; correction``."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of a kube-scheduler's configuration."""

    scheduler_name: str
    """The scheduler name that the profile states; empty if it states none."""
    scoring: FitScoring
    place: str = ""
    """The profile's place in the file, such as ``profiles[0]``."""

    @property
    def objective(self) -> Objective:
        """The objective of Allaboard that is nearest to the scoring. A gang's annotation may choose another one."""
        shape = self.scoring.shape
        is_packing = self.scoring.strategy is Strategy.MOST or (shape and shape[-1][1] >= shape[0][1])
        return Objective.BINPACK if is_packing else Objective.SPREAD


@dataclass(frozen=True, slots=True)
class KubeSchedulerSettings:
    """The part of a kube-scheduler's configuration that Allaboard honours, and warnings about the other fields."""

    profiles: tuple[Profile, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    """Values of options of Allaboard by name, such as ``client_qps``."""
    warnings: tuple[str, ...] = ()
    """One message for each field that isn't honoured."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Options by name, each with the mistake in its value. The mistake doesn't matter if a flag or variable sets the option."""


NO_SETTINGS = KubeSchedulerSettings()


@dataclass(frozen=True, slots=True)
class InForce:
    """The scheduler names in force, and the profiles of a kube-scheduler's configuration that score for them."""

    names: tuple[str, ...]
    """The schedulerNames of the pods that Allaboard schedules."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Profiles by scheduler name. Gangs with a scheduler name that has no profile are placed by Allaboard's own options."""
    warnings: tuple[str, ...] = ()
    is_stated: bool = True
    """True if the configuration file states an option, or if there is no configuration file."""
    kubeconfig_place: str = ""
    """The field and file that name the kubeconfig in use; empty if no configuration file does."""


def in_force(kubescheduler: KubeSchedulerSettings, own: Sequence[str]) -> InForce:
    """Return the scheduler names and profiles in force: those of ``kubescheduler``, and the names ``own`` of ``scheduler_names``.

    A profile without a name is for the names ``own``. A profile of ``default-scheduler`` isn't in force unless ``own`` has that name.
    """
    names, profiles, warnings = dict.fromkeys(own), {}, list(kubescheduler.warnings)
    if DEFAULT_SCHEDULER in own:
        warnings.append(
            f"scheduler_names: kube-scheduler takes pods of {DEFAULT_SCHEDULER}, too, and binds them one by one, so gangs start in part;"
            " give its own profile another schedulerName, or let admission webhooks set the schedulerName of pods (docs/admission.md)"
        )
    for profile in kubescheduler.profiles:
        if profile.scheduler_name == DEFAULT_SCHEDULER and DEFAULT_SCHEDULER not in own:
            warnings.append(
                f"{profile.place}: pods of {DEFAULT_SCHEDULER} are left to kube-scheduler, so this profile isn't in force;"
                f" list {DEFAULT_SCHEDULER} in scheduler_names to take its pods over, or give the profile another schedulerName"
            )
        elif profile.scheduler_name:
            names[profile.scheduler_name] = None
            profiles[profile.scheduler_name] = profile
    for profile in kubescheduler.profiles:
        if not profile.scheduler_name:
            warnings.append(
                f"{profile.place}: has no schedulerName, which means {DEFAULT_SCHEDULER} for kube-scheduler; pods of that name are left to"
                f" it, and the profile is in force for {', '.join(name for name in own if name not in profiles) or 'no scheduler name'}"
            )
            profiles = dict.fromkeys(own, profile) | profiles
    return InForce(tuple(names), profiles, tuple(warnings))
