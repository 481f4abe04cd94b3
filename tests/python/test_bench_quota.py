"""`leat bench` in a real cgroup with a CPU quota, as in test_dataloader_quota.py."""

import json
import os

from test_bench import bench  # noqa: F401
from test_dataloader_quota import group  # noqa: F401


def test_quota_is_respected(bench, group):  # noqa: F811
    """Half a core, which is neither the affinity nor a whole number."""
    group.limit(0.5)
    bench.write("train(DataLoader(Rows(256, 0), batch_size=16))\n")

    def enter():
        with open(os.path.join(group.path, "cgroup.procs"), "w") as procs:
            procs.write(str(os.getpid()))

    process = bench.start("--json", "--max-workers", "1", "script.py", preexec_fn=enter)
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    assert json.loads(stdout)["limits"]["cpus"] == 0.5
    assert bench.left() == []
