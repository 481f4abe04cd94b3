"""What leat predicts of a change to a loader, and what the change then brings.

    make bench-what-if
    .venv/bin/python bench/what_if.py [--build FOLDER] [--only WORD]

Each workload runs under `leat run`; the verdict's finding names a setting of the DataLoader and the
gain it predicts. The workload then runs again with exactly that setting, and the throughputs of the
two runs give the gain that was measured. The last column is how far the throughput that was
predicted is from the one that was reached. `leat compare` of the two runs must tell the same.

Prints a table and then the bars; the exit status is 0 when all bars hold.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from overhead import ROOT, WORKLOADS, Bars, machine, show_progress

MOST_OFF = 0.15
LEAST_PREDICTED = 8  # a change that would bring nothing has no prediction, and no bar
# name: the workload's arguments, the settings of its loader before the change
WORKS = {
    "short waits, no workers": ("sleep 5 --step 15 --steps 200", ""),
    "long waits, no workers": ("sleep 30 --step 30 --steps 60", ""),
    "stream, no workers": ("stream 8 --step 12 --steps 150", ""),
    "waits that scatter, 1 worker": ("scatter 15 --step 14 --steps 120", "num_workers=1"),
    "long waits, 1 worker": ("sleep 20 --step 22 --steps 90", "num_workers=1"),
    "pure Python, no workers": ("python 20 --step 20 --steps 150", ""),
    "pure Python, 1 worker": ("python 40 --step 8 --steps 90", "num_workers=1"),
    "numpy and torch, no workers": ("array 4 --batch 8 --step 20 --steps 150", ""),
    "busy step, no workers": ("python 20 --step 12 --compute --steps 150", ""),
    "crowded cores": ("python 30 --step 5 --compute --steps 150", "num_workers=12"),
    "short epochs": ("sleep 1 --step 15 --epoch 10 --steps 250", "num_workers=2"),
    "tensors one by one": ("tensors 0 --batch 2048 --step 15 --epoch 40 --steps 160", ""),
}


class Runs:
    def __init__(self, build, folder):
        self.leat, self.folder = os.path.join(build, "leat"), pathlib.Path(folder)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("LEAT_")}
        self.environment["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]

    def run(self, name, arguments, settings):
        script = os.path.join(WORKLOADS, "loader_train.py")
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


def try_workload(runs, name):
    """(cause, setting, predicted gain, measured gain, whether `leat compare` says the same); all but
    the cause None where leat predicted nothing that a setting can do."""
    arguments, settings = WORKS[name]
    label = name.replace(" ", "-").replace(",", "")
    before = runs.run(f"{label}-before", arguments, settings.split())
    finding = the_finding(before)
    cause = finding["cause"] or finding["kind"]
    predicted = finding["predicted"]
    if not predicted or "=" not in predicted["setting"]:
        return cause, None, None, None, None
    setting, gain = predicted["setting"], predicted["gain"]
    after = runs.run(f"{label}-after", arguments, apply_setting(settings.split(), setting))
    rates = [run["step_time"]["samples_per_s"] for run in (before, after)]
    measured = rates[1] / rates[0] - 1
    told = runs.compare(f"{label}-before", f"{label}-after")["prediction"] or {}
    same = told.get("followed") is True and told["setting"] == setting
    same = same and told["predicted_gain"] == gain and abs(told["measured_gain"] - measured) < 1e-6
    return cause, setting, gain, measured, same


def show_row(name, cause, setting, predicted, measured, off):
    print(
        f"  {name:28} {cause:19} {setting or '-':39} {predicted:>9} {measured:>9} {off:>7}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", default="", help="workloads whose name holds this")
    parser.add_argument("--logs", help="keep the runs in this new folder")
    arguments = parser.parse_args()
    print(f"Machine: {machine()}.\n")
    show_row("workload", "cause", "setting", "predicted", "measured", "off by")
    bars, alike = Bars(), []
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        runs = Runs(os.path.abspath(arguments.build), arguments.logs or folder)
        for name in (name for name in WORKS if arguments.only in name):
            show_progress(name)
            cause, setting, predicted, measured, same = try_workload(runs, name)
            show_progress("")
            if setting is None:
                show_row(name, cause, setting, "-", "-", "-")
                continue
            off = (1 + predicted) / (1 + measured) - 1
            show_row(name, cause, setting, f"{predicted:+.0%}", f"{measured:+.0%}", f"{off:+.0%}")
            bars.add(name, f"{off:+.1%}", f"within {MOST_OFF:.0%}", abs(off) <= MOST_OFF)
            alike.append(same)
        bars.add("leat compare tells the same", f"{sum(alike)} times", len(alike), all(alike))
        if not arguments.only:
            enough = len(alike) >= LEAST_PREDICTED
            bars.add("gains predicted", len(alike), f"at least {LEAST_PREDICTED}", enough)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
