"""A configuration file: our own options, a kube-scheduler's configuration, or both as documents of one file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic.alias_generators import to_snake

from allaboard.model.errors import shown
from allaboard.model.yamltext import TextError, decoded, yaml_documents
from allaboard.settings.kubescheduler import GROUP, VERSIONS, kubescheduler_from
from allaboard.settings.kubescheduler import KIND as FOREIGN_KIND
from allaboard.settings.profiles import NOTHING, ConfigurationError, Foreign

API_VERSION = "allaboard.dev/v1alpha1"
KIND = "AllaboardConfiguration"

MOST_BYTES = 1 << 20
"""As much as a ConfigMap may hold."""

_MOST_VALUES = 100_000
_OWN_VERSIONS = (API_VERSION,)
_FOREIGN_VERSIONS = tuple(f"{GROUP}/{version}" for version in VERSIONS)


@dataclass(frozen=True, slots=True)
class Stated:
    """What a file says: our ``own`` options as they stand, and what a kube-scheduler is configured to.

    An ``is_empty`` file has no document at all, or comments only.
    """

    own: Mapping[str, object] = field(default_factory=dict)
    foreign: Foreign = NOTHING
    is_empty: bool = False

    @property
    def options(self) -> Mapping[str, object]:
        """Values of options by name; our own win."""
        return {**self.foreign.options, **self.own}


@lru_cache(maxsize=1)
def stated_in(content: bytes) -> Stated:
    """What a file with ``content`` says; settings ask twice. Raises ``ConfigurationError`` that says what is wrong, and where."""
    if len(content) > MOST_BYTES:
        raise ConfigurationError(f"is larger than {MOST_BYTES >> 20} MiB, more than a ConfigMap holds")
    try:
        documents = [document for document in yaml_documents(decoded(content)) if document is not None]
    except TextError as error:
        raise ConfigurationError(str(error)) from error
    _refuse_many(documents)
    own: Mapping[str, object] | None = None
    foreign: Foreign | None = None
    for number, document in enumerate(documents):
        where = f"document {number + 1}: " if len(documents) > 1 else ""
        if not isinstance(document, Mapping):
            raise ConfigurationError(f"{where}must hold a mapping of options, not {shown(document)}")
        named = {str(key).lower(): value for key, value in document.items()}
        is_foreign = str(named.get("apiversion")).startswith(f"{GROUP}/")
        if (foreign if is_foreign else own) is not None:
            raise ConfigurationError(f"{where}there can be one {FOREIGN_KIND if is_foreign else KIND} only")
        try:
            if is_foreign:
                foreign = kubescheduler_from({str(key): value for key, value in document.items()})
            else:
                own = _own(document, is_alone=len(documents) == 1)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}{error}") from error
    return Stated(own or {}, foreign or NOTHING, is_empty=not documents)


def _own(document: Mapping[object, object], *, is_alone: bool) -> dict[str, object]:
    """Our options. In a file of their own they need no kind."""
    options = {str(key): value for key, value in document.items()}
    api_version, kind = options.pop("apiVersion", None), options.pop("kind", None)
    is_bare = api_version is None and kind is None
    if is_bare and any(name.lower() == "profiles" for name in options):
        raise ConfigurationError(f"looks like a {FOREIGN_KIND}: add apiVersion and kind, such as {GROUP}/v1 and {FOREIGN_KIND}")
    if api_version is None and not (is_bare and is_alone):
        versions = {KIND: _OWN_VERSIONS, FOREIGN_KIND: _FOREIGN_VERSIONS}.get(str(kind), _OWN_VERSIONS + _FOREIGN_VERSIONS)
        raise ConfigurationError(f"apiVersion: is missing; one of {', '.join(versions)}")
    if api_version == API_VERSION and kind is None:
        raise ConfigurationError(f"kind: is missing; must be {KIND}")
    if (api_version, kind) != (API_VERSION, KIND) and not (is_alone and (api_version, kind) == (None, None)):
        stated = " ".join(shown(each) for each in (api_version, kind) if each is not None)
        raise ConfigurationError(f"must be of {API_VERSION} {KIND} or of {GROUP}/v1 {FOREIGN_KIND}, not of {stated}")
    found: dict[str, object] = {}
    for name, value in options.items():
        option = to_snake(name) if name.isidentifier() else name
        if option in found:
            raise ConfigurationError(f"{name}: is stated twice, in different spellings")
        found[option] = value
    return found


def _refuse_many(documents: Sequence[object]) -> None:
    """A few lines with anchors can stand for more than there is memory."""
    waiting, left = list(documents), _MOST_VALUES
    while waiting:
        value = waiting.pop()
        left -= 1
        if left < 0:
            raise ConfigurationError(f"holds more than {_MOST_VALUES} values")
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
