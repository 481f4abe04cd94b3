#!/usr/bin/env bash
# wheel.sh: dist/leat-*.whl by meson-python, then a trial in an environment that has nothing else.

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
tools/setup.sh wheel

PYTHON=${PYTHON:-python3}
venv=build/wheel-venv

build_environment() {
    if ! "$venv/bin/python" -c 'import mesonpy, wheel' 2>/dev/null; then
        rm -rf "$venv"
        "$PYTHON" -m venv "$venv"
        "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-input \
            'meson-python>=0.16' 'meson>=1.2' ninja wheel
    fi
}

build_wheel() {
    rm -rf dist
    PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" -m pip wheel --disable-pip-version-check \
        --no-build-isolation --no-deps --wheel-dir dist .
    # The tag says the Python it was built with; the extension is compiled for the stable ABI of 3.9.
    "$venv/bin/python" -m wheel tags --remove --python-tag cp39 dist/*.whl
    ls dist/*.whl
}

stage 'environment for the wheel' build_environment
stage 'wheel' build_wheel
stage 'wheel in a fresh environment' tests/packaging/test_wheel.sh dist/*.whl
