"""Which of these packages the running Python lacks, one per line; for setup.sh.

    .venv/bin/python tools/lacking.py torch==2.13.0 numpy

Judged as pip would: a bare name is there in any version, a version that is asked for must be the one
that is installed (2.13.0+cpu is a 2.13.0). What pip takes and this cannot read, such as the path of a
wheel, counts as lacking: pip then decides.
"""

import importlib.metadata
import sys

from pip._vendor.packaging.requirements import InvalidRequirement, Requirement


def is_there(wanted):
    try:
        requirement = Requirement(wanted)
        version = importlib.metadata.version(requirement.name)
    except (InvalidRequirement, importlib.metadata.PackageNotFoundError):
        return False
    return not requirement.url and requirement.specifier.contains(version, prereleases=True)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        if not is_there(wanted):
            print(wanted)
