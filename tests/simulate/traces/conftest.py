"""Small trace folders with the layout of the public ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-b,4000,8192,1,500,T4|G2,LS,Running,10,400,20
pod-a,11300,8192,2,1000,,BE,Failed,0,90,0
pod-c,1000,1024,0,0,,BE,Pending,5,5,
pod-d,4000,8192,1,500,T4|G2,LS,Running,10,80,10
"""
NODES = """\
sn,cpu_milli,memory_mib,gpu,model
node-2,96000,393216,4,G2
node-1,64000,262144,2,T4
"""
PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:01:55,100.0,28,2800.0,ee9e8c
"""
LOG = """\
u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status
0,1,24,1,3,0,84,0,Pass
1,1,0,4,2,94,0,0,Killed
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A traces folder with one list, one published order (seed 42) and one log of each kind."""
    files = {
        "openb/openb_pod_list_default.csv": PODS,
        "openb/openb_node_list_gpu_node.csv": NODES,
        "openb/openb_node_list_all_node.csv": NODES + "node-3,32000,65536,0,\n",
        "philly/philly_jobs_82k.csv": PHILLY,
        "philly/philly_last15k.csv": LOG,
        "helios/helios_last15k.csv": LOG,
    }
    for name, text in files.items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    (tmp_path / "openb-arrivals").mkdir()
    orders = b"pods 42 1 3 1 0 1 2\nnodes 42 1 0\n"
    (tmp_path / "openb-arrivals/default.txt.gz").write_bytes(gzip.compress(orders))
    return tmp_path
