"""The header of a case of the verdict matrix.

A case is a training script in cases/, which may use training.py (those in ../gpu/cases need a GPU). Lines
`# e2e: key = value` before its docstring declare what leat must find in it; the script knows nothing
else of this matrix. The keys:

    expect      kinds of which the run's verdict must be one
    healthy     yes: no finding of severity warning or above may be there at all
    cause       causes of which the verdict's finding must name one, and no finding another
    severity    of the verdict
    rank        the rank the verdict must be about
    worker      the worker it must be about
    line        how the line of the script begins at which the time is spent; it must be named
    share       the least share of the time that line must be given (default 0.5)
    says        a regular expression that the verdict's text or evidence must match
    forbid      kinds that must not be among the findings of severity warning or above
    mistake     which of the ten known wrong verdicts of other tools the case guards against
    launch      plain (default) | torchrun N | bash FILE | module
    exit        the status the script ends with (default 0)
    signal      the signal it dies of
    ended       completed (default) | failed | killed | interrupted
    stdin       a line given to it
    stdout      a regular expression for its lines other than the last
    stderr      a regular expression that its stderr must match
    interrupt   when this line appears on stdout, Ctrl-C is pressed
    evaluates   seconds of evaluation that must be reported apart, at the least
    compiles    how many steps torch.compile worked in; they must be counted separately
    gpus        foreign: none of the host's is of this run, not a word on them; own: this run uses one
                (by a fake library, see matrix.py)
    steps       none: the script makes no steps
    cores       all: the case is about the CPU, so no other case runs at the same time
    beside      a case that runs at the same time
    before, after, compare, compare_exit
                two runs with these arguments, and the result of `leat compare` (one of a
                list), and its status

The script's last line on stdout is its own count: `steps=101`, with `rank=1 ` before it under
torchrun, and ` batches=404` after it where the batches that arrived in those steps are known.
"""

import dataclasses
import pathlib
import re

CASES = pathlib.Path(__file__).parent / "cases"
KEYS = """expect healthy cause severity rank worker line share says forbid mistake launch exit signal ended stdin stdout
stderr interrupt evaluates compiles gpus steps cores beside before after compare compare_exit""".split()
TRUTH = re.compile(r"^(?:rank=(?P<rank>\d+) )?steps=(?P<steps>\d+)(?: batches=(?P<batches>\d+))?$")


@dataclasses.dataclass
class Case:
    name: str
    path: pathlib.Path
    about: str
    keys: dict

    def get(self, key, default=None):
        return self.keys.get(key, default)

    def list(self, key):
        return [item.strip() for item in self.keys.get(key, "").split(",") if item.strip()]

    @property
    def healthy(self):
        return self.keys.get("healthy") == "yes"

    @property
    def line_number(self):
        """Where in the script the line is that the key `line` begins."""
        lines = self.path.read_text().splitlines()
        found = [n for n, line in enumerate(lines, 1) if line.strip().startswith(self.get("line"))]
        if len(found) != 1:
            raise ValueError(f"{self.path}: {len(found)} lines begin with {self.get('line')!r}")
        return found[0]

    @property
    def ranks(self):
        launch = self.get("launch", "plain").split()
        return int(launch[1]) if launch[0] == "torchrun" else 1

    @property
    def expected(self):
        """What the table shows."""
        text = "healthy" if self.healthy else "/".join(self.list("expect"))
        if self.get("cause"):
            text += " " + self.get("cause")
        if self.get("rank"):
            text += f" r{self.get('rank')}"
        if self.get("compare"):
            text += " " + self.get("compare")
        return text


def read_case(path):
    keys = {}
    text = path.read_text()
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        match = re.match(r"# e2e: (\w+) = (.+)$", line)
        key = match[1] if match else ""
        if key not in KEYS or key in keys:
            raise ValueError(f"{path}: cannot read the line {line!r}")
        keys[key] = match[2].strip()
    if "expect" not in keys:
        raise ValueError(f"{path}: says nothing of the verdict it expects")
    about = re.search(r'"""(.+?)"""', text, re.S)
    return Case(path.stem, path, about[1] if about else "", keys)


def read_cases(folder=CASES):
    return [read_case(path) for path in sorted(folder.glob("*.py"))]


def read_truth(stdout):
    """The script's own counts: {rank: (steps, batches or None)}."""
    truth = {}
    for line in stdout.splitlines():
        if match := TRUTH.match(line):
            batches = match["batches"]
            truth[int(match["rank"] or 0)] = (int(match["steps"]), batches and int(batches))
    return truth
