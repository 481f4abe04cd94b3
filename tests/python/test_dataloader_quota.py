"""leat.DataLoader in a process with a CPU quota or a memory limit: a real cgroup, v1 or v2, made
for the test. It needs root, for a quota two cores, and a machine that lets groups be made; else it
is skipped, and says why. And in one that may use a single core."""

import os

import pytest

CORES = len(os.sched_getaffinity(0))


def mounts(kind):
    """(folder, options) of the hierarchies of "cgroup" or "cgroup2"."""
    with open("/proc/mounts") as table:
        rows = [line.split() for line in table]
    return [(row[1], row[3].split(",")) for row in rows if row[2] == kind]


def own_path(controller):
    """Where this process is in the hierarchy of a controller; "" is v2."""
    with open("/proc/self/cgroup") as table:
        for line in table:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(","):
                return path
    return "/"


# The files of a limit, of v1 and of v2.
LIMITS = {
    "cpu": (("cpu.cfs_period_us", "cpu.cfs_quota_us"), ("cpu.max",)),
    "memory": (("memory.limit_in_bytes",), ("memory.max",)),
}


def parents(controller):
    """Folders in which a group with a limit may be made, and the files of a limit there."""
    first, second = LIMITS[controller]
    for folder, options in mounts("cgroup"):
        if controller in options:
            yield folder + own_path(controller), first
    for folder, _ in mounts("cgroup2"):
        parent = folder + own_path("")
        try:
            with open(os.path.join(parent, "cgroup.subtree_control")) as enabled:
                if controller in enabled.read().split():
                    yield parent, second
        except OSError:
            continue


def has_limit(folder, files):
    """The root of a hierarchy has no such file. A huge limit is no limit."""
    try:
        with open(os.path.join(folder, files[-1])) as file:
            limit = file.read().split()[0]
            return limit not in ("-1", "max") and int(limit) < 1 << 60
    except FileNotFoundError:
        return False


class Group:
    """A cgroup for one process."""

    def __init__(self, parent, files):
        self.path = os.path.join(parent, f"leat-test-{os.getpid()}")
        self.files = files
        os.mkdir(self.path)

    def limit(self, cores):
        quota = int(cores * 100000)
        self.write(f"{quota} 100000") if len(self.files) == 1 else self.write("100000", str(quota))

    def write(self, *values):
        for name, value in zip(self.files, values):
            with open(os.path.join(self.path, name), "w") as file:
                file.write(value)

    def enter(self):
        """Source code that moves a script into the group."""
        procs = os.path.join(self.path, "cgroup.procs")
        return f"import os; open({procs!r}, 'w').write(str(os.getpid()))\n"


def made_group(controller):
    """A group that can be limited; else the test is skipped with the reason."""
    refused = f"no cgroup hierarchy with the {controller} controller"
    for parent, files in parents(controller):
        if has_limit(parent, files):
            pytest.skip(f"the tests themselves have a limit on {controller}")
        try:
            made = Group(parent, files)
        except OSError as error:
            refused = f"no group can be made: {error}"
            continue
        yield made
        os.rmdir(made.path)
        return
    pytest.skip(refused)


@pytest.fixture
def group():
    if CORES < 2:
        pytest.skip("a quota of one core says nothing where there is one core")
    yield from made_group("cpu")


@pytest.fixture
def memory_group():
    """Only at the root of a hierarchy: the owner of another group may not expect further groups in it."""
    paths = {own_path("memory"), own_path("")}
    if paths != {"/"}:
        pytest.skip(f"this process is in a group of another program's: {', '.join(sorted(paths))}")
    yield from made_group("memory")


LOAD = """
import leat
loader = leat.DataLoader(TensorDataset(torch.arange(4000)), batch_size=10, shuffle=True)
for _ in range(2):
    assert sorted(int(i) for x, in loader for i in x) == list(range(4000))
print(loader.stats().threads)
"""


@pytest.mark.parametrize(("quota", "cores"), [(None, CORES), (1, 1), (0.5, 1), (CORES + 1, CORES)])
def test_cores_are_those_of_the_quota(train, group, quota, cores):
    """Without a quota, or with a larger one, the cores are those of the affinity."""
    if quota:
        group.limit(quota)
    run = train(group.enter() + LOAD)
    assert run.main.engines[0].cores == cores
    if cores == 1:
        assert run.stdout == "1\n"


def test_cores_are_those_of_the_affinity(train):
    """With one core there is one thread beside the training."""
    one = min(os.sched_getaffinity(0))
    run = train(f"import os; os.sched_setaffinity(0, {{{one}}})\n" + LOAD)
    assert run.main.engines[0].cores == 1 and run.stdout == "1\n"


def test_the_memory_budget_is_a_part_of_the_limit(train, memory_group):
    limit = 2 << 30
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < limit:
        pytest.skip("the machine has less memory than the limit")
    memory_group.write(str(limit))
    run = train(memory_group.enter() + LOAD + "print(loader.stats().memory_most_bytes)\n")
    assert int(run.stdout.split()[1]) == limit // 4
