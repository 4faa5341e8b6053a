"""Options that are pairs: a mapping in a file, and ``key=value,…`` in the environment, where it isn't to be taken for JSON."""

from typing import Annotated

from pydantic_settings import NoDecode

Pairs = Annotated[dict[str, str], NoDecode]
