"""Keeps the collection of garbage short: a full collection of many cached objects would stop the event loop."""

import gc


def freeze_cached_objects() -> None:
    """Exclude the cached objects from garbage collection, which would stop the event loop to walk them all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 2_000)  # young objects take a few milliseconds; a full collection is rare
