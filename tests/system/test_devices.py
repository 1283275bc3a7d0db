"""Devices on the whole path: a real job, its agent, the real pynvml over a stand-in of the driver, Parquet."""

import time
from collections import defaultdict

import pytest
from busy import slowness
from nvml_stub import NvmlStub, gpu

from rankscope.analyzers.memory import memory as memory_of
from rankscope.analyzers.run import Run
from rankscope.hooks.device_library import READ_COLUMNS

pytestmark = [pytest.mark.system, pytest.mark.slow]

JOB = """
import glob, os, pathlib, time
import rankscope.auto
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
held = []
while not glob.glob(os.environ["RANKSCOPE_DIR"] + "/live/*/device_sample*.arrows"):
    time.sleep(0.05)  # the agent samples
dist.barrier()
control, began = pathlib.Path(os.environ["NVML_STUB_CONTROL"]), time.monotonic()
for second in range(7):
    if second == 3 and dist.get_rank() == 0:
        control.write_text("lost 6\\nxid 6 79\\nblock nvmlDeviceGetTemperature 30 5\\n")
    for _ in range(10):
        if dist.get_rank() == 1:
            held.append(torch.ones(50_000))  # 200 kB
        time.sleep(max(0, began + second - time.monotonic()) / 10)
        parameter.grad = torch.ones(4)
        dist.all_reduce(parameter.grad)
        optimizer.step()
dist.destroy_process_group()
"""


def test_devices_of_a_real_job(torchrun, tmp_path, monkeypatch):
    stub = NvmlStub.compile(tmp_path / "nvml")
    environment = {
        **stub.environment(), "CUDA_VISIBLE_DEVICES": f"{gpu(2)},{gpu(0)},{gpu(5)},{gpu(6)}", "RANKSCOPE_AGENT": "now",
        "RANKSCOPE_SAMPLE_SECONDS": "0.4",
    }  # fmt: skip
    job = torchrun(JOB, 2, env=environment, timeout=90).check()
    ended = time.monotonic()
    job.settle()
    assert time.monotonic() - ended < 10 * slowness(), "a silent driver held the agent up"
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    with Run.open(str(job.run_dir)) as run:
        columns = ("device_uuid", "time_ns", "reason", *READ_COLUMNS)
        samples = defaultdict(list)
        for values in run.rows(f"SELECT {', '.join(columns)} FROM device_sample ORDER BY time_ns"):
            samples[values[0]].append(dict(zip(columns, values, strict=True)))
        owners = run.rows("SELECT rank, device_uuid FROM process ORDER BY rank")
        devices = run.rows("SELECT device_uuid, pci_bus_id, name, node IS NOT NULL FROM device ORDER BY device_uuid")
        memory = run.rows("SELECT rank, count(*), min(rss_bytes), count(allocated_bytes) FROM memory GROUP BY rank")
        steps = run.rows("SELECT rank, count(*) FROM step GROUP BY rank ORDER BY rank")
        grows = {rank.rank: rank.rss_creep for rank in memory_of(run).ranks}
        problems = [row[0] for row in run.rows("SELECT why FROM capture WHERE hook = 'nvml' AND why IS NOT NULL")]
    assert owners == [(0, gpu(2)), (1, gpu(0))]
    assert devices == [(gpu(index), f"0000:1{index}:00.0", "Stub A100", True) for index in (0, 2, 5, 6)]
    assert set(samples) == {gpu(index) for index in (0, 2, 5, 6)} and problems == []
    for index in (0, 2):
        found = samples[gpu(index)]
        assert len(found) >= 5
        assert {round(row["power_watts"], 6) for row in found} == {100.5 + index / 1000}
        assert {row["nvlink_rx_bytes"] for row in found} == {1024 * (1000 + index)}
        assert all(row["reason"] == '{"last_xid": "none since sampling began"}' for row in found)
    lost, silent = samples[gpu(6)], samples[gpu(5)]
    assert lost[0]["power_watts"] == pytest.approx(100.506) and lost[-1]["power_watts"] is None
    assert lost[-1]["last_xid"] == 79 and '"power_watts": "the GPU is lost"' in lost[-1]["reason"]
    assert silent[0]["temperature_celsius"] == 45 and silent[-1]["temperature_celsius"] is None
    assert '"temperature_celsius": "no answer for ' in silent[-1]["reason"]
    assert sorted((rank, number) for rank, number, _, _ in memory) == steps == [(0, 70), (1, 70)]
    assert all(least > 1_000_000 and told == 0 for _, _, least, told in memory)
    assert grows[1].interval is not None and grows[1].interval.low > 0
    assert float(grows[1].value or 0) == pytest.approx(200_000, rel=0.1)
    assert float(grows[0].value or 0) < 50_000
