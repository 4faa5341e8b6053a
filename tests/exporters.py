"""Serves metrics pages in the formats of real GPU exporters."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

DCGM_LABELS = (
    'gpu="{card}",UUID="GPU-5fd4f087-86f3-7a43-b711-4771313afc5{card}",pci_bus_id="00000000:0{card}:00.0",device="nvidia{card}",'
    'modelName="NVIDIA A100-SXM4-40GB"{more},Hostname="{node}",DCGM_FI_DRIVER_VERSION="535.104.05"'
)
DCGM_VALUES = {
    "DCGM_FI_DEV_SM_CLOCK": 1410,
    "DCGM_FI_DEV_GPU_TEMP": 41,
    "DCGM_FI_DEV_POWER_USAGE": 61.5,
    "DCGM_FI_DEV_GPU_UTIL": 25,
    "DCGM_FI_DEV_ENC_UTIL": 0,
    "DCGM_FI_DEV_DEC_UTIL": 50,
    "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_FB_FREE": 30000,
    "DCGM_FI_DEV_FB_USED": 10000,
    "DCGM_FI_DEV_FB_RESERVED": 536,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
}


def dcgm(node: str, cards: int, more: str = "", **values: float) -> str:
    """Return the page of a dcgm-exporter; ``values`` replace or extend its values by name."""
    lines = []
    for name, value in (DCGM_VALUES | values).items():
        lines += [f"# HELP {name} As NVIDIA describes it.", f"# TYPE {name} gauge"]
        lines += [f"{name}{{{DCGM_LABELS.format(card=card, node=node, more=more)}}} {value}" for card in range(cards)]
    return "\n".join(lines) + "\n"


def observerward(cards: int) -> str:
    """Return the page of an ObserverWard exporter, which doesn't name its node, and whose static values are 0."""
    values = {
        "observerward_dynamic_gpu_used_global_memory_MiB": 2048,
        "observerward_dynamic_gpu_free_global_memory_MiB": 6144,
        "observerward_dynamic_gpu_power_usage_W": 120,
        "observerward_dynamic_gpu_encoder_utilization": 10,
        "observerward_dynamic_gpu_decoder_utilization": 20,
        "observerward_dynamic_gpu_memory_utilization": 30,
        "observerward_static_gpu_memory_size": 0,
        "observerward_static_gpu_multiprocessor_count": 0,
        "observerward_static_gpu_shared_decoder_count": 0,
        "observerward_static_gpu_shared_encoder_count": 0,
    }
    labels = 'id="{card}",model="GeForce GTX 1070 Ti",uuid="GPU-{card}"'
    return "".join(f"{name}{{{labels.format(card=card)}}} {value}\n" for name, value in values.items() for card in range(cards))


@asynccontextmanager
async def served(page: Callable[[], str], host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """Serve ``page()`` at ``/metrics``, and yield the port."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=page())

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
