"""Published statistics from which `simulate.synthetic` draws its traces.

Sources:
- openb, the default pod list and the node list of Alibaba's 2023 GPU trace ("Beware of Fragmentation", USENIX ATC
  2023): shares of pod kinds, the most frequent sizes of each kind, the 15 node shapes, life times of pods that share
  a GPU;
- Philly, the public extract of 82,247 jobs of Microsoft's 2017 cluster ("Analysis of Large-Scale Multi-Tenant GPU
  Clusters", USENIX ATC 2019): run times by size of the job, submissions by hour of the day;
- Acme, the summary of Shanghai AI Lab's 2023 trace ("Characterization of Large Language Model Development in the
  Datacenter", NSDI 2024): GPUs per job.

Weights are counts or per mille; only their ratios matter.
"""

from __future__ import annotations

import msgspec

from windlass.simulate.fleet import NodeSize


class PodKind(msgspec.Struct, frozen=True):
    """One kind of pod: its weight, memory per vCPU, and sizes as (weight, milli-CPU, milli-GPU)."""

    name: str
    weight: int
    gpus: int
    mib_per_cpu: int
    sizes: tuple[tuple[int, int, int], ...]


OPENB_KINDS = (
    PodKind(
        *("cpu-only", 1088, 0, 2769),
        ((366, 12500, 0), (290, 32000, 0), (185, 8000, 0), (120, 15400, 0), (95, 16500, 0), (14, 16000, 0)),
    ),
    PodKind(
        *("gpu-share", 3078, 1, 3541),
        (
            *((1047, 3152, 810), (388, 11908, 470), (360, 8000, 470), (237, 11908, 650), (232, 4000, 320)),
            *((122, 4000, 230), (120, 6000, 460), (75, 3152, 590), (72, 8000, 320), (72, 4152, 550)),
            *((54, 4000, 160), (45, 4152, 370), (43, 4000, 220), (31, 4152, 810), (22, 1000, 320)),
            *((20, 6000, 160), (19, 8000, 220), (18, 4000, 110), (18, 4000, 480), (18, 8000, 230)),
        ),
    ),
    PodKind(
        *("one-gpu", 3911, 1, 3831),
        (
            *((874, 11300, 1000), (599, 11400, 1000), (470, 3152, 1000), (326, 12000, 1000)),
            *((255, 18708, 1000), (195, 9810, 1000), (164, 8000, 1000), (159, 4000, 1000)),
            *((158, 15700, 1000), (153, 11908, 1000), (150, 16000, 1000), (93, 14200, 1000)),
            *((84, 24200, 1000), (55, 11900, 1000), (41, 8200, 1000)),
        ),
    ),
    PodKind("two-gpus", 16, 2, 4291, ((7, 16200, 1000), (3, 6000, 1000), (3, 30200, 1000))),
    PodKind("four-gpus", 15, 4, 4291, ((9, 32200, 1000), (3, 32000, 1000), (3, 60200, 1000))),
    PodKind("eight-gpus", 44, 8, 4291, ((18, 88000, 1000), (18, 64200, 1000), (5, 120000, 1000), (3, 64000, 1000))),
)

OPENB_NODES = (
    (549, NodeSize(96_000, 393_216, 8, "G2")),
    (387, NodeSize(104_000, 524_288, 2, "T4")),
    (107, NodeSize(16_000, 122_880, 2, "P100")),
    (39, NodeSize(128_000, 786_432, 8, "G3")),
    (28, NodeSize(32_000, 131_072, 4, "V100M16")),
    (22, NodeSize(64_000, 262_144, 2, "P100")),
    (21, NodeSize(96_000, 786_432, 8, "V100M32")),
    (19, NodeSize(8_000, 32_768, 1, "V100M16")),
    (17, NodeSize(96_000, 393_216, 4, "T4")),
    (9, NodeSize(48_000, 376_832, 4, "V100M32")),
    (7, NodeSize(64_000, 262_144, 8, "V100M16")),
    (3, NodeSize(8_000, 61_440, 1, "P100")),
    (2, NodeSize(8_000, 61_440, 2, "P100")),
    (2, NodeSize(128_000, 1_048_576, 1, "A10")),
    (1, NodeSize(82_000, 344_064, 8, "V100M16")),
)
OPENB_NODE_COUNT = 1213

QUANTILES = (
    *(0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    *(0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0),
)
"""Cumulative shares of the tables of seconds below."""

PHILLY_SECONDS_1 = (
    *(1, 30, 42, 52, 62, 76, 215, 600, 1117, 1728),
    *(2464, 3754, 8512, 19137, 68251, 135399, 266914, 865708, 3256045),
)
PHILLY_SECONDS_2_TO_4 = (
    *(2, 6, 8, 11, 15, 19, 25, 85, 367, 5582),
    *(25424, 79258, 166119, 233082, 467464, 747317, 1122854, 2171243, 2750674),
)
PHILLY_SECONDS_8_UP = (
    *(1, 22, 38, 82, 199, 638, 3372, 11470, 23649, 58929),
    *(129324, 195350, 340514, 510989, 786810, 1062173, 1958345, 2655441, 4628226),
)
OPENB_SHARE_SECONDS = (
    *(1, 5, 10, 27, 54, 109, 174, 267, 439, 745),
    *(1118, 2242, 7141, 16535, 41504, 74630, 153099, 259200, 604800),
)
"""As recorded up to 99.5 %; the tail (services that outlive the recording) ends after a week."""

PHILLY_HOURS = (
    *(1274, 985, 1119, 1103, 700, 1153, 1673, 2089, 1109, 1006, 1024, 869),
    *(749, 705, 638, 649, 882, 668, 801, 728, 1016, 917, 1134, 1010),
)
"""Submissions by hour of the day, in thousandths of the mean."""

SERVICE_HOURS = (
    *(700, 580, 500, 460, 450, 480, 580, 760, 960, 1120, 1220, 1280),
    *(1260, 1240, 1260, 1300, 1320, 1330, 1340, 1360, 1340, 1250, 1060, 850),
)
"""A made-up day of a service in one time zone: peak to trough 3 to 1."""

TRAINING_GPUS = ((600, 1), (70, 2), (80, 4), (170, 8), (45, 16), (20, 32), (10, 64), (5, 128))
"""Jobs by GPUs, per mille: mean 5.1, between Helios (3.7) and Acme's Seren (5.7), maximum 128."""
