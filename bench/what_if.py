"""Predicted gains of loader settings beside measured ones.

    make bench-what-if
    .venv/bin/python bench/what_if.py [--build FOLDER] [--only WORD] [--rounds N]

Each workload runs under `leat run`; the verdict's finding names a setting of the DataLoader and its
predicted gain. The workload then runs with exactly that setting, and the two throughputs give the
measured gain. Both runs are made twice, in turn, so that a machine that gets slower affects both; only
once when five minutes have passed. The measured gain is the geometric mean of the rounds. The
prediction is that of the first run, because a user has no other. The last column compares predicted
and measured throughput. `leat compare` of the first two runs must report the same gains.

A workload for which leat predicts no gain of a setting is shown with "none" and is not counted.
Prints a table and then the bars; the exit status is 0 when all bars hold.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from overhead import ROOT, WORKLOADS, Bars, machine, show_progress

MOST_OFF = 0.15
LEAST_HELD = 8  # a change without a gain has no prediction and no bar
AGAIN_S = 300  # no second round after this, so that all takes less than ten minutes
# name: the workload's arguments, the settings of its loader before the change
WORKS = {
    "short waits, no workers": ("sleep 5 --step 15 --steps 130", ""),
    "long waits, no workers": ("sleep 30 --step 30 --steps 40", ""),
    "stream, no workers": ("stream 8 --step 12 --steps 110", ""),
    "waits that scatter, 1 worker": ("scatter 15 --step 14 --steps 90", "num_workers=1"),
    "long waits, 1 worker": ("sleep 20 --step 22 --steps 60", "num_workers=1"),
    "pure Python, no workers": ("python 20 --step 20 --steps 120", ""),
    "pure Python, 1 worker": ("python 40 --step 8 --steps 90", "num_workers=1"),
    "numpy and torch, no workers": ("array 4 --batch 8 --step 20 --steps 120", ""),
    "busy step, no workers": ("python 20 --step 12 --compute --steps 120", ""),
    "images, no workers": ("--epochs 4", "num_workers=0"),
    "crowded cores": ("python 30 --step 5 --compute --steps 120", "num_workers=12"),
    "short epochs": ("sleep 1 --step 15 --epoch 10 --steps 150", "num_workers=2"),
    "tensors one by one": ("tensors 0 --batch 2048 --step 15 --epoch 40 --steps 120", ""),
}
EXAMPLE = "images, no workers"  # the training of `make demo`, which has an option of its own


class Runs:
    def __init__(self, build, folder):
        self.begin = time.monotonic()
        self.leat, self.folder = os.path.join(build, "leat"), pathlib.Path(folder)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("LEAT_")}
        self.environment["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]

    def run(self, name, work, settings):
        arguments, script = WORKS[work][0], os.path.join(WORKLOADS, "loader_train.py")
        if work == EXAMPLE:
            script = os.path.join(ROOT, "examples", "slow_train.py")
            settings = ["--workers", dict(text.split("=") for text in settings)["num_workers"]]
        command = [self.leat, "run", "--quiet", "--logs-dir", str(self.folder)]
        command += ["--run-name", name, script, *arguments.split(), *settings]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{name} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        return json.loads((self.folder / name / "final_summary.json").read_text())

    def compare(self, before, after):
        command = [self.leat, "compare", "--json", str(self.folder / before)]
        done = subprocess.run(
            [*command, str(self.folder / after)], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)


def the_finding(summary):
    """The finding that the verdict stands for."""
    kind = summary["verdict"]["kind"]
    return next((f for f in summary["findings"] if f["kind"] == kind), None)


def apply_setting(settings, change):
    """DataLoader arguments after a change, both as lists of name=value."""
    changed = dict(text.split("=", 1) for text in [*settings, *change.split(",")])
    if changed.get("num_workers", "0") == "0":
        changed.pop("persistent_workers", None)
    return [f"{name}={value}" for name, value in changed.items()]


def try_workload(runs, name, rounds):
    """(cause, setting, predicted gain, measured gain, whether `leat compare` agrees). Where no
    setting has a predicted gain, all but the cause are None."""
    settings = WORKS[name][1].split()
    label = name.replace(" ", "-").replace(",", "")
    before = runs.run(f"{label}-before", name, settings)
    finding = the_finding(before)
    cause = finding["cause"] or finding["kind"]
    predicted = finding["predicted"]
    if not predicted or finding["predicted_at_most"]:  # an upper bound is for a change of the code
        return cause, None, None, None, None
    setting, gain = predicted["setting"], predicted["gain"]
    changed = apply_setting(settings, setting)
    first = runs.run(f"{label}-after", name, changed)
    ratios = [rate_of(first) / rate_of(before)]
    for number in range(2, rounds + 1):
        if time.monotonic() - runs.begin > AGAIN_S:
            break
        again = runs.run(f"{label}-before-{number}", name, settings)
        ratios.append(rate_of(runs.run(f"{label}-after-{number}", name, changed)) / rate_of(again))
    reported = runs.compare(f"{label}-before", f"{label}-after")["prediction"] or {}
    same = reported.get("followed") is True and reported["setting"] == setting
    same = same and reported["predicted_gain"] == gain
    same = same and abs(reported["measured_gain"] - (ratios[0] - 1)) < 1e-6
    return cause, setting, gain, math.prod(ratios) ** (1 / len(ratios)) - 1, same


def rate_of(summary):
    return summary["step_time"]["samples_per_s"]


def show_row(name, cause, setting, predicted, measured, off):
    print(
        f"  {name:28} {cause:19} {setting:39} {predicted:>9} {measured:>9} {off:>7}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", default="", help="workloads whose name holds this")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--logs", help="keep the runs in this new folder")
    arguments = parser.parse_args()
    print(f"Machine: {machine()}.\n")
    show_row("workload", "cause", "setting", "predicted", "measured", "off by")
    bars, alike, held = Bars(), [], 0
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        runs = Runs(os.path.abspath(arguments.build), arguments.logs or folder)
        for name in (name for name in WORKS if arguments.only in name):
            show_progress(name)
            cause, setting, predicted, measured, same = try_workload(runs, name, arguments.rounds)
            show_progress("")
            if predicted is None:
                show_row(name, cause, "-", "none", "-", "-")
                continue
            off = (1 + predicted) / (1 + measured) - 1
            show_row(name, cause, setting, f"{predicted:+.0%}", f"{measured:+.0%}", f"{off:+.0%}")
            bars.add(name, f"{off:+.1%}", f"within {MOST_OFF:.0%}", abs(off) <= MOST_OFF)
            held += abs(off) <= MOST_OFF
            alike.append(same)
        bars.add("leat compare reports the same", f"{sum(alike)} times", len(alike), all(alike))
        if not arguments.only:
            bars.add("gains held", held, f"at least {LEAST_HELD}", held >= LEAST_HELD)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
