"""leat.DataLoader in a process with a CPU quota: a real cgroup, v1 or v2, made for the test. It needs
root, two cores and a machine that lets groups be made; else it is skipped, and says why."""

import os

import pytest

CORES = len(os.sched_getaffinity(0))


def mounts(kind):
    """(folder, options) of the hierarchies of "cgroup" or "cgroup2"."""
    with open("/proc/mounts") as table:
        rows = [line.split() for line in table]
    return [(row[1], row[3].split(",")) for row in rows if row[2] == kind]


def own_path(controller):
    """Where this process is in the hierarchy of a controller; "" is that of v2."""
    with open("/proc/self/cgroup") as table:
        for line in table:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(","):
                return path
    return "/"


def parents():
    """Folders in which a group with a quota may be made, and the files of a quota there."""
    for folder, options in mounts("cgroup"):
        if "cpu" in options:
            yield folder + own_path("cpu"), ("cpu.cfs_period_us", "cpu.cfs_quota_us")
    for folder, _ in mounts("cgroup2"):
        parent = folder + own_path("")
        try:
            with open(os.path.join(parent, "cgroup.subtree_control")) as enabled:
                if "cpu" in enabled.read().split():
                    yield parent, ("cpu.max",)
        except OSError:
            continue


def has_quota(folder, files):
    """The root of a hierarchy has no such file, and no quota."""
    try:
        with open(os.path.join(folder, files[-1])) as file:
            return file.read().split()[0] not in ("-1", "max")
    except FileNotFoundError:
        return False


class Group:
    """A group of its own for one process."""

    def __init__(self, parent, files):
        self.path = os.path.join(parent, f"leat-test-{os.getpid()}")
        self.files = files
        os.mkdir(self.path)

    def limit(self, cores):
        quota = int(cores * 100000)
        values = (f"{quota} 100000",) if len(self.files) == 1 else ("100000", str(quota))
        for name, value in zip(self.files, values):
            with open(os.path.join(self.path, name), "w") as file:
                file.write(value)

    def enter(self):
        """What a script does to be in it."""
        procs = os.path.join(self.path, "cgroup.procs")
        return f"import os; open({procs!r}, 'w').write(str(os.getpid()))\n"


@pytest.fixture
def group():
    if CORES < 2:
        pytest.skip("a quota of one core says nothing where there is one core")
    refused = "no cgroup hierarchy with the cpu controller"
    for parent, files in parents():
        if has_quota(parent, files):
            pytest.skip("the tests themselves have a quota")
        try:
            made = Group(parent, files)
        except OSError as error:
            refused = f"no group can be made: {error}"
            continue
        yield made
        os.rmdir(made.path)
        return
    pytest.skip(refused)


LOAD = """
import leat
loader = leat.DataLoader(TensorDataset(torch.arange(4000)), batch_size=10, shuffle=True)
for _ in range(2):
    assert sorted(int(i) for x, in loader for i in x) == list(range(4000))
print(loader.stats().threads)
"""


@pytest.mark.parametrize(("quota", "cores"), [(None, CORES), (1, 1), (0.5, 1), (CORES + 1, CORES)])
def test_cores_are_those_of_the_quota(train, group, quota, cores):
    """Without one, or with more than there are, all that affinity leaves."""
    if quota:
        group.limit(quota)
    run = train(group.enter() + LOAD)
    assert run.main.engines[0].cores == cores
    if cores == 1:
        assert run.stdout == "1\n"
