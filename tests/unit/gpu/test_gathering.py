"""Tests that samples of exporters become measurements of GPUs, and that malformed or absurd samples become unknown."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.gpu.dialects import DCGM, INSTANCE, KNOWN, OBSERVERWARD, Dialect, dialects
from allaboard.gpu.exporters import ExporterPod, Locator
from allaboard.gpu.expositions import samples
from allaboard.gpu.gathering import MOST_CARDS, MOST_NODES, Gathering, Reading, Sample
from allaboard.model.gpus import Measure
from tests.exporters import dcgm, observerward


async def read(page: str, dialect: Dialect, node: str = "n1") -> Reading:
    """Return the reading of one exporter's page."""

    async def chunks():  # type: ignore[no-untyped-def]
        yield page.encode()

    gathering = Gathering(lambda label, value: value)
    found = await samples(chunks(), {metric.name for metric in dialect.metrics}, {INSTANCE: node})
    for metric in dialect.metrics:
        gathering.take(dialect, metric, found.get(metric.name, ()))
    return gathering.reading()


def of(reading: Reading, measure: Measure, node: int = 0) -> list[float]:
    return [pytest.approx(value, nan_ok=True) for value in reading.values[measure, node].tolist()]


def a_sample(value: str, **labels: str) -> Sample:
    inside = ",".join(f'"{name}":"{text}"' for name, text in labels.items())
    return inside.encode(), b"1732725000.5", value.encode()


async def test_dcgm_memory_is_summed_from_its_parts_and_percentages_become_ratios() -> None:
    reading = await read(dcgm("n1", 2), DCGM)
    assert (reading.nodes, reading.names, reading.models) == (("n1",), (("0", "1"),), ("NVIDIA A100-SXM4-40GB",))
    assert reading.model.tolist() == [[0, 0]]
    expected = {
        Measure.MEMORY: 40536.0,
        Measure.FREE: 30000.0,
        Measure.POWER: 61.5,
        Measure.TEMPERATURE: 41.0,
        Measure.UTILIZATION: 0.25,
        Measure.ENCODER: 0.0,
        Measure.DECODER: 0.5,
        Measure.XID: 0.0,
        Measure.REMAP_FAILURE: 0.0,
    }
    for measure in Measure:
        assert of(reading, measure) == [expected.get(measure, np.nan)] * 2, measure.name


async def test_total_memory_of_dcgm_is_preferred_and_missing_utilization_is_taken_from_engine_activity() -> None:
    page = dcgm("n1", 1, DCGM_FI_DEV_FB_TOTAL=40960, DCGM_FI_PROF_GR_ENGINE_ACTIVE=0.75, DCGM_FI_DEV_GPU_UTIL=float("nan"))
    reading = await read(page, DCGM)
    assert of(reading, Measure.MEMORY) == [40960.0]
    assert of(reading, Measure.UTILIZATION) == [0.75]


async def test_series_of_mig_instances_are_no_gpus_and_do_not_change_the_numbers_of_the_whole_gpu() -> None:
    parents = dcgm("n1", 2)
    parts = dcgm(
        "n1", 2, more=',GPU_I_PROFILE="1g.5gb",GPU_I_ID="1"', DCGM_FI_DEV_FB_FREE=4000, DCGM_FI_DEV_FB_USED=9, DCGM_FI_DEV_GPU_UTIL=99
    )
    reading = await read(parts + parents, DCGM)
    alone = await read(parents, DCGM)
    assert reading.names == (("0", "1"),)
    np.testing.assert_array_equal(reading.values, alone.values)


async def test_gpu_whose_series_are_all_of_mig_instances_has_the_values_of_the_whole_gpu() -> None:
    reading = await read(dcgm("n1", 1, more=',GPU_I_PROFILE="1g.5gb",GPU_I_ID="1"', DCGM_FI_DEV_XID_ERRORS=79), DCGM)
    assert reading.names == (("0",),)
    assert (of(reading, Measure.XID), of(reading, Measure.POWER)) == ([79.0], [61.5])
    assert np.isnan(reading.values[[Measure.MEMORY, Measure.FREE, Measure.UTILIZATION], 0, 0]).all()


async def test_zeros_of_the_exporter_observerward_are_unknown_and_its_metrics_are_those_of_its_pods_node() -> None:
    reading = await read(observerward(1), OBSERVERWARD, "gpu-2")
    assert reading.nodes == ("gpu-2",)
    assert (of(reading, Measure.MEMORY), of(reading, Measure.FREE), of(reading, Measure.DECODER)) == ([8192.0], [6144.0], [0.2])
    assert np.isnan(reading.values[[Measure.MULTIPROCESSORS, Measure.ENCODERS, Measure.DECODERS], 0, 0]).all()


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"Hostname": "n1", "node": "n2"}, "n1"),
        ({"hostname": "n1", "node": "n2"}, "n1"),
        ({"node": "n2", "kubernetes_node": "n1"}, "n2"),
        ({"kubernetes_node": "n1", "instance": "10.0.0.9:9400"}, "n1"),
        ({"exported_node": "n2", "instance": "10.0.0.9:9400"}, "n2"),
        ({"instance": "10.0.0.9:9400"}, "n3"),
        ({"instance": "[fd00::9]:9400"}, "n2"),
        ({"Hostname": "dcgm-exporter-abcde"}, "n3"),
        ({"Hostname": "elsewhere", "node": "n1"}, "n1"),
    ],
)
def test_node_of_a_series_is_found_by_the_most_preferred_label_that_names_a_node(labels: dict[str, str], node: str) -> None:
    locator = Locator({"n1", "n2", "n3"}.__contains__)
    locator.learn([ExporterPod("dcgm-exporter-abcde", "n3", "10.0.0.9", 9400), ExporterPod("other", "n2", "fd00::9", 9400)])
    gathering = Gathering(locator.locate)
    gathering.take(DCGM, DCGM.metrics[0], [a_sample("40", gpu="0", **labels)])
    assert gathering.reading().nodes == (node,)


def test_series_of_a_node_outside_the_cluster_is_left_out() -> None:
    gathering = Gathering(Locator({"n1"}.__contains__).locate)
    gathering.take(DCGM, DCGM.metrics[0], [a_sample("40", gpu="0", Hostname="n9", instance="10.0.0.1:9400")])
    assert (gathering.reading().nodes, gathering.unlocated) == ((), 1)


def test_if_a_gpu_has_several_series_the_least_free_memory_and_the_greatest_other_values_count() -> None:
    gathering = Gathering(lambda _, value: value)
    by_name = {metric.name: metric for metric in DCGM.metrics}
    for name in ("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_GPU_TEMP"):
        for value in ("50", "30", "40"):
            gathering.take(DCGM, by_name[name], [a_sample(value, Hostname="n1", gpu="0", pod=f"p{value}")])
    reading = gathering.reading()
    assert (of(reading, Measure.FREE), of(reading, Measure.TEMPERATURE)) == ([30.0], [50.0])


def test_exporter_that_the_settings_describe_is_read() -> None:
    stated = {"acme_free_bytes": "free:bytes", "acme_used_bytes": "used:bytes", "acme_mw": "power:0.001"}
    acme, *others = dialects(stated, "host", "index", "kind")
    assert tuple(others) == KNOWN
    gathering = Gathering(lambda _, value: value)
    for metric, value in zip(acme.metrics, ("1073741824", "2147483648", "70000"), strict=True):
        gathering.take(acme, metric, [a_sample(value, host="n1", index="a", kind="Acme 9")])
    reading = gathering.reading()
    assert (of(reading, Measure.MEMORY), of(reading, Measure.FREE), of(reading, Measure.POWER)) == ([3072.0], [1024.0], [70.0])
    assert (reading.names, reading.models) == ((("a",),), ("Acme 9",))


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300", "9223372036854775792", "140737488355328", "many", ""])
def test_absurd_gpu_measurements_count_as_unknown(value: str) -> None:
    gathering = Gathering(lambda _, value: value)
    for metric in DCGM.metrics:
        gathering.take(DCGM, metric, [a_sample(value, Hostname="n1", gpu="0")])
    assert np.isnan(gathering.reading().values).all()


def test_numbers_of_gpus_nodes_and_models_are_limited() -> None:
    gathering = Gathering(lambda _, value: value)
    many = [a_sample("1", Hostname="n1", gpu=str(card)) for card in range(MOST_CARDS + 5)]
    nodes = [a_sample("1", Hostname=f"node-{node}", gpu="0", modelName=f"m{node}") for node in range(MOST_NODES + 5)]
    gathering.take(DCGM, DCGM.metrics[0], many)
    gathering.take(DCGM, DCGM.metrics[0], nodes)
    gathering.take(DCGM, DCGM.metrics[0], [a_sample("1", Hostname="n1", gpu="x" * 200), a_sample("1", Hostname="../x", gpu="0")])
    reading = gathering.reading()
    assert (len(reading.names[0]), len(reading.nodes), len(reading.models)) == (MOST_CARDS, MOST_NODES, 256)


TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["n1", "n2", "0", "1", ""]))
LABELS = st.dictionaries(st.one_of(st.sampled_from(["Hostname", "gpu", "UUID", "GPU_I_ID", "modelName", "id"]), TEXTS), TEXTS, max_size=6)


def inside(labels: dict[str, str]) -> bytes:
    return ",".join(f'"{name}":"{text}"' for name, text in labels.items()).encode(errors="replace")


INSIDES = st.binary(max_size=40) | LABELS.map(inside)
NUMBERS = st.binary(max_size=12) | (st.floats() | st.integers()).map(lambda number: str(number).encode())


@given(st.lists(st.tuples(st.sampled_from(DCGM.metrics + OBSERVERWARD.metrics), st.tuples(INSIDES, NUMBERS, NUMBERS)), max_size=30))
def test_random_gpu_samples_give_numbers_within_bounds_or_unknown(samples: list[tuple[object, Sample]]) -> None:
    gathering = Gathering(lambda _, value: value if value in ("n1", "n2") else None)
    for metric, sample in samples:
        dialect = DCGM if metric in DCGM.metrics else OBSERVERWARD
        gathering.take(dialect, metric, [sample])  # type: ignore[arg-type]
        gathering.take_times(dialect, [sample])
    reading = gathering.reading()
    assert set(reading.nodes) <= {"n1", "n2"}
    assert reading.values.shape == (len(Measure), *reading.model.shape)
    known = reading.values[~np.isnan(reading.values)]
    assert ((known >= 0) & (known <= 2**24)).all()
    ratios = reading.values[[Measure.UTILIZATION, Measure.ENCODER, Measure.DECODER, Measure.REMAP_FAILURE]]
    assert (np.isnan(ratios) | (ratios <= 1)).all()
    assert (reading.model < len(reading.models)).all()
    assert np.isfinite(reading.ages).all()
