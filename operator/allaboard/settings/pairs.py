"""The type of options that are pairs: a mapping in a file, ``key=value,…`` in the environment, where pydantic would expect JSON."""

from typing import Annotated

from pydantic_settings import NoDecode

Pairs = Annotated[dict[str, str], NoDecode]
