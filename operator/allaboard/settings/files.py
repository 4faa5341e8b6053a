"""Parse a configuration file: options of Allaboard, a kube-scheduler's configuration, or both as documents of one file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic.alias_generators import to_snake

from allaboard.model.errors import shown
from allaboard.model.yamltext import TextError, decoded, yaml_documents
from allaboard.settings.kubescheduler import GROUP, VERSIONS, kubescheduler_from
from allaboard.settings.kubescheduler import KIND as KUBESCHEDULER_KIND
from allaboard.settings.profiles import NO_SETTINGS, ConfigurationError, KubeSchedulerSettings

API_VERSION = "allaboard.dev/v1alpha1"
KIND = "AllaboardConfiguration"

MOST_BYTES = 1 << 20
"""Largest size of a file in bytes: a ConfigMap can't hold more."""

_MOST_VALUES = 100_000
_OWN_VERSIONS = (API_VERSION,)
_KUBESCHEDULER_VERSIONS = tuple(f"{GROUP}/{version}" for version in VERSIONS)


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """A parsed configuration file. Values of options are unchecked."""

    own: Mapping[str, object] = field(default_factory=dict)
    """Options of Allaboard by name, from the file's AllaboardConfiguration."""
    kubescheduler: KubeSchedulerSettings = NO_SETTINGS
    """The honoured part of a kube-scheduler's configuration in the file."""
    is_empty: bool = False
    """True if the file has no document, or only comments."""

    @property
    def options(self) -> Mapping[str, object]:
        """Values of options by name. Options of Allaboard win over those of a kube-scheduler's configuration."""
        return {**self.kubescheduler.options, **self.own}


@lru_cache(maxsize=1)
def parse_configuration(content: bytes) -> ConfigurationFile:
    """Return the parsed ``content`` of a file. Cached, since ``load_settings`` parses the same content twice.

    Raises ``ConfigurationError``, which names the place in the file and the mistake.
    """
    if len(content) > MOST_BYTES:
        raise ConfigurationError(f"is larger than {MOST_BYTES >> 20} MiB, more than a ConfigMap holds")
    try:
        documents = [document for document in yaml_documents(decoded(content)) if document is not None]
    except TextError as error:
        raise ConfigurationError(str(error)) from error
    _refuse_many(documents)
    own: Mapping[str, object] | None = None
    kubescheduler: KubeSchedulerSettings | None = None
    for number, document in enumerate(documents):
        where = f"document {number + 1}: " if len(documents) > 1 else ""
        if not isinstance(document, Mapping):
            raise ConfigurationError(f"{where}must hold a mapping of options, not {shown(document)}")
        named = {str(key).lower(): value for key, value in document.items()}
        is_kubescheduler = str(named.get("apiversion")).startswith(f"{GROUP}/")
        if (kubescheduler if is_kubescheduler else own) is not None:
            raise ConfigurationError(f"{where}there can be one {KUBESCHEDULER_KIND if is_kubescheduler else KIND} only")
        try:
            if is_kubescheduler:
                kubescheduler = kubescheduler_from({str(key): value for key, value in document.items()})
            else:
                own = _own(document, is_alone=len(documents) == 1)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}{error}") from error
    return ConfigurationFile(own or {}, kubescheduler or NO_SETTINGS, is_empty=not documents)


def _own(document: Mapping[object, object], *, is_alone: bool) -> dict[str, object]:
    """Return the options of an Allaboard document by name in snake case. The only document of a file needs no apiVersion and no kind."""
    options = {str(key): value for key, value in document.items()}
    api_version, kind = options.pop("apiVersion", None), options.pop("kind", None)
    is_bare = api_version is None and kind is None
    if is_bare and any(name.lower() == "profiles" for name in options):
        raise ConfigurationError(f"looks like a {KUBESCHEDULER_KIND}: add apiVersion and kind, such as {GROUP}/v1 and {KUBESCHEDULER_KIND}")
    if api_version is None and not (is_bare and is_alone):
        versions = {KIND: _OWN_VERSIONS, KUBESCHEDULER_KIND: _KUBESCHEDULER_VERSIONS}.get(
            str(kind), _OWN_VERSIONS + _KUBESCHEDULER_VERSIONS
        )
        raise ConfigurationError(f"apiVersion: is missing; one of {', '.join(versions)}")
    if api_version == API_VERSION and kind is None:
        raise ConfigurationError(f"kind: is missing; must be {KIND}")
    if (api_version, kind) != (API_VERSION, KIND) and not (is_alone and (api_version, kind) == (None, None)):
        stated = " ".join(shown(each) for each in (api_version, kind) if each is not None)
        raise ConfigurationError(f"must be of {API_VERSION} {KIND} or of {GROUP}/v1 {KUBESCHEDULER_KIND}, not of {stated}")
    found: dict[str, object] = {}
    for name, value in options.items():
        option = to_snake(name) if name.isidentifier() else name
        if option in found:
            raise ConfigurationError(f"{name}: is stated twice, in different spellings")
        found[option] = value
    return found


def _refuse_many(documents: Sequence[object]) -> None:
    """Raise ``ConfigurationError`` for too many values: a few lines with YAML anchors can expand to more values than fit into memory."""
    unvisited, left = list(documents), _MOST_VALUES
    while unvisited:
        value = unvisited.pop()
        left -= 1
        if left < 0:
            raise ConfigurationError(f"holds more than {_MOST_VALUES} values")
        if isinstance(value, Mapping):
            unvisited += value.values()
        elif isinstance(value, list):
            unvisited += value
