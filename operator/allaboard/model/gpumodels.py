"""Attributes of common GPU models of data centres and workstations, for GPUs that no exporter measures.

Memory, multiprocessors (AMD's compute units) and bandwidth are from the vendors' data sheets. Decoders and encoders are from NVIDIA's
Video Encode and Decode GPU Support Matrix (developer.nvidia.com/video-encode-decode-support-matrix), and from the data sheets of AMD (VCN)
and Intel. Expressions are tried on ``canonical`` names, and the first match counts, so specific expressions come first.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Attributes(NamedTuple):
    """The attributes of a GPU: memory in MiB, multiprocessors, NVDEC and NVENC engines, memory bandwidth in GB/s; NaN if unknown."""

    memory: float = float("nan")
    multiprocessors: float = float("nan")
    decoders: float = float("nan")
    encoders: float = float("nan")
    bandwidth: float = float("nan")


_GIB = 1024

MODELS: Mapping[str, Attributes] = {
    # NVIDIA, Blackwell
    r"\bGB300\b|\bB300\b": Attributes(288 * _GIB, 148, 7, 0, 8000),
    r"\bGB200\b": Attributes(186 * _GIB, 148, 7, 0, 8000),
    r"\bB200\b": Attributes(180 * _GIB, 148, 7, 0, 8000),
    r"RTX PRO 6000 Blackwell": Attributes(96 * _GIB, 188, 4, 4, 1792),
    r"RTX PRO 5000 Blackwell": Attributes(48 * _GIB, 110, 3, 3, 1344),
    r"RTX PRO 4500 Blackwell": Attributes(32 * _GIB, 82, 2, 2, 896),
    r"RTX PRO 4000 Blackwell": Attributes(24 * _GIB, 70, 2, 2, 672),
    r"RTX 5090\b": Attributes(32 * _GIB, 170, 2, 3, 1792),
    r"RTX 5080\b": Attributes(16 * _GIB, 84, 2, 2, 960),
    # Hopper
    r"\bGH200 144G|\bGH200.*HBM3e": Attributes(144 * _GIB, 132, 7, 0, 4900),
    r"\bGH200\b": Attributes(96 * _GIB, 132, 7, 0, 4000),
    r"\bH200 NVL\b": Attributes(141 * _GIB, 132, 7, 0, 4800),
    r"\bH200\b": Attributes(141 * _GIB, 132, 7, 0, 4800),
    r"\bH100 NVL\b": Attributes(94 * _GIB, 132, 7, 0, 3938),
    r"\bH100 PCIe\b": Attributes(80 * _GIB, 114, 7, 0, 2039),
    r"\bH100\b": Attributes(80 * _GIB, 132, 7, 0, 3352),
    r"\bH800\b": Attributes(80 * _GIB, 132, 7, 0, 3352),
    r"\bH20\b": Attributes(96 * _GIB, 78, 7, 0, 4000),
    # Ada Lovelace
    r"\bL40S\b": Attributes(48 * _GIB, 142, 3, 3, 864),
    r"\bL40\b": Attributes(48 * _GIB, 142, 3, 3, 864),
    r"\bL20\b": Attributes(48 * _GIB, 92, 3, 3, 864),
    r"\bL4\b": Attributes(24 * _GIB, 58, 4, 2, 300),
    r"RTX 6000 Ada": Attributes(48 * _GIB, 142, 3, 3, 960),
    r"RTX 5000 Ada": Attributes(32 * _GIB, 100, 2, 2, 576),
    r"RTX 4500 Ada": Attributes(24 * _GIB, 60, 2, 2, 432),
    r"RTX 4000 (SFF )?Ada": Attributes(20 * _GIB, 48, 2, 2, 360),
    r"RTX 4090\b": Attributes(24 * _GIB, 128, 1, 2, 1008),
    r"RTX 4080\b": Attributes(16 * _GIB, 76, 1, 2, 717),
    # Ampere
    r"\bA100.*80 ?GB": Attributes(80 * _GIB, 108, 5, 0, 2039),
    r"\bA100\b": Attributes(40 * _GIB, 108, 5, 0, 1555),
    r"\bA800\b": Attributes(80 * _GIB, 108, 5, 0, 2039),
    r"\bA30\b": Attributes(24 * _GIB, 56, 4, 0, 933),
    r"\bA40\b": Attributes(48 * _GIB, 84, 2, 1, 696),
    r"\bA16\b": Attributes(16 * _GIB, 10, 2, 1, 200),
    r"\bA10G\b": Attributes(24 * _GIB, 80, 2, 1, 600),
    r"\bA10\b": Attributes(24 * _GIB, 72, 2, 1, 600),
    r"\bA2\b": Attributes(16 * _GIB, 10, 2, 1, 200),
    r"RTX A6000\b": Attributes(48 * _GIB, 84, 2, 1, 768),
    r"RTX A5500\b": Attributes(24 * _GIB, 80, 2, 1, 768),
    r"RTX A5000\b": Attributes(24 * _GIB, 64, 2, 1, 768),
    r"RTX A4500\b": Attributes(20 * _GIB, 56, 2, 1, 640),
    r"RTX A4000\b": Attributes(16 * _GIB, 48, 1, 1, 448),
    r"RTX A2000\b": Attributes(12 * _GIB, 26, 1, 1, 288),
    r"RTX 3090\b": Attributes(24 * _GIB, 82, 1, 1, 936),
    r"RTX 3080\b": Attributes(10 * _GIB, 68, 1, 1, 760),
    # Turing and before
    r"\bT4\b": Attributes(16 * _GIB, 40, 2, 1, 320),
    r"Quadro RTX 8000\b": Attributes(48 * _GIB, 72, 1, 1, 672),
    r"Quadro RTX 6000\b": Attributes(24 * _GIB, 72, 1, 1, 672),
    r"RTX 2080 Ti\b": Attributes(11 * _GIB, 68, 1, 1, 616),
    r"\bV100.*32 ?GB": Attributes(32 * _GIB, 80, 1, 3, 900),
    r"\bV100\b": Attributes(16 * _GIB, 80, 1, 3, 900),
    r"TITAN V\b": Attributes(12 * _GIB, 80, 1, 3, 653),
    r"\bP100\b": Attributes(16 * _GIB, 56, 1, 3, 732),
    r"\bP40\b": Attributes(24 * _GIB, 30, 1, 2, 346),
    r"\bP4\b": Attributes(8 * _GIB, 20, 1, 2, 192),
    r"GTX 1080 Ti\b": Attributes(11 * _GIB, 28, 1, 2, 484),
    r"GTX 1080\b": Attributes(8 * _GIB, 20, 1, 2, 320),
    r"GTX 1070 Ti\b": Attributes(8 * _GIB, 19, 1, 2, 256),
    r"GTX 1070\b": Attributes(8 * _GIB, 15, 1, 2, 256),
    r"\bK80\b": Attributes(12 * _GIB, 13, 1, 1, 240),
    # AMD
    r"\bMI355X\b": Attributes(288 * _GIB, 256, 4, 0, 8000),
    r"\bMI350X\b": Attributes(288 * _GIB, 256, 4, 0, 8000),
    r"\bMI325X\b": Attributes(256 * _GIB, 304, 4, 0, 6000),
    r"\bMI300X\b": Attributes(192 * _GIB, 304, 4, 0, 5300),
    r"\bMI250X\b": Attributes(128 * _GIB, 220, 2, 0, 3277),
    r"\bMI250\b": Attributes(128 * _GIB, 208, 2, 0, 3277),
    r"\bMI210\b": Attributes(64 * _GIB, 104, 1, 0, 1638),
    r"\bMI100\b": Attributes(32 * _GIB, 120, 1, 0, 1229),
    # Intel
    r"Max 1550\b": Attributes(128 * _GIB, 128, 0, 0, 3277),
    r"Max 1100\b": Attributes(48 * _GIB, 56, 0, 0, 1229),
    r"Flex 170\b": Attributes(16 * _GIB, 32, 2, 2, 576),
    r"Flex 140\b": Attributes(12 * _GIB, 16, 4, 4, 336),
}
