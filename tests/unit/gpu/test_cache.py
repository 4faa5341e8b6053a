"""Tests that measurements of GPUs get older, and count as unknown when they are too old."""

import math

import numpy as np

from allaboard.gpu.cache import CardCache
from allaboard.gpu.dialects import DCGM
from allaboard.gpu.gathering import Gathering, Reading
from allaboard.model.gpus import NO_CARDS, Measure


def a_reading(*nodes: str, temperature: int = 40, age: float = 0.0, model: str = "A100") -> Reading:
    gathering = Gathering(lambda _, value: value)
    for node in nodes:
        labels = f'"Hostname":"{node}","gpu":"0","modelName":"{model}"'.encode()
        gathering.take(DCGM, DCGM.metrics[0], [(labels, b"1000", str(temperature).encode())])
        gathering.take_times(DCGM, [(labels, b"1000", str(1000 - age).encode())])
    return gathering.reading()


def temperatures(cache: CardCache, now: float) -> dict[str, float]:
    cards = cache.cards(now)
    return {node: float(cards.values[Measure.TEMPERATURE, row, 0]) for node, row in cards.rows.items()}


def test_empty_cache_knows_no_gpus() -> None:
    cache = CardCache(60.0)
    assert cache.cards(0.0) is NO_CARDS
    assert (cache.counts(0.0), cache.expires(0.0)) == ((0, 0), math.inf)


def test_measurements_that_are_too_old_are_unknown_but_gpus_and_models_stay_known() -> None:
    cache = CardCache(60.0)
    cache.take(a_reading("n1"), 100.0)
    assert (temperatures(cache, 159.0), cache.counts(159.0), cache.expires(100.0)) == ({"n1": 40.0}, (1, 0), 60.0)
    assert np.isnan(temperatures(cache, 160.0)["n1"])
    assert (cache.counts(160.0), cache.expires(160.0)) == ((0, 1), math.inf)
    assert cache.cards(160.0).models == ("A100",)


def test_errors_of_a_gpu_stay_known_after_its_exporter_has_stopped_until_the_node_is_forgotten() -> None:
    cache = CardCache(60.0)
    gathering = Gathering(lambda _, value: value)
    for metric in DCGM.metrics:
        if metric.quantity in (Measure.XID, Measure.REMAP_FAILURE, Measure.FREE):
            gathering.take(DCGM, metric, [(b'"Hostname":"n1","gpu":"0"', b"0", b"79")])
    cache.take(gathering.reading(), 100.0)
    for now in (100.0, 160.0, 699.0):
        values = cache.cards(now).values[:, 0, 0]
        assert (values[Measure.XID], values[Measure.REMAP_FAILURE]) == (79.0, 1.0)
        assert np.isnan(values[Measure.FREE]) == (now >= 160.0)
    cache.take(a_reading("n2"), 701.0)
    assert cache.cards(701.0).rows.keys() == {"n2"}


def test_age_of_a_measurement_counts_from_the_scrape_and_not_from_the_query() -> None:
    cache = CardCache(60.0)
    cache.take(a_reading("n1", age=59.0), 100.0)
    assert temperatures(cache, 100.5) == {"n1": 40.0}
    assert np.isnan(temperatures(cache, 101.5)["n1"])


def test_node_without_new_measurements_becomes_unknown_and_is_later_forgotten() -> None:
    cache = CardCache(60.0)
    cache.take(a_reading("n1", "n2"), 100.0)
    cache.take(a_reading("n2", temperature=50, model="H100"), 130.0)
    assert temperatures(cache, 131.0) == {"n1": 40.0, "n2": 50.0}
    cards = cache.cards(131.0)
    assert {node: cards.models[cards.model[row, 0]] for node, row in cards.rows.items()} == {"n1": "A100", "n2": "H100"}
    assert np.isnan(temperatures(cache, 165.0)["n1"])
    cache.take(a_reading("n2"), 701.0)
    assert cache.cards(701.0).rows.keys() == {"n2"}
    assert cache.cards(701.0).models == ("A100",)


def test_models_that_no_gpu_has_are_dropped() -> None:
    cache = CardCache(60.0)
    for number in range(50):
        cache.take(a_reading("n1", f"n{2 + number % 2}", model=f"m{number}"), 100.0 + number)
    assert len(cache.cards(150.0).models) <= 2
