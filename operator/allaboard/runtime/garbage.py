"""Keeps garbage collections short while the scheduler holds many objects."""

import gc


def freeze_objects() -> None:
    """Exclude the present objects from garbage collection, which would stop the event loop to walk them all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 2, 10_000)  # a collection of young objects takes a few milliseconds; a full collection is rare
