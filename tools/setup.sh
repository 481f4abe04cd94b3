#!/usr/bin/env bash
# setup.sh: what the build needs, on Debian 12 or Ubuntu 24.04, for root or for a user with sudo.
#
#     tools/setup.sh check|build|lint|wheel
#
# check: no PyTorch; build: PyTorch and what the tests need; lint: the analysers too; wheel: no .venv.
#
# It asks for the thing itself (a header, a program, a Python module) and not for a package by name,
# so a machine that has them from elsewhere is left alone. apt-get is called once, for what is
# missing and nothing else; with nothing missing nothing is called. `.venv` is made from the python3
# on the PATH; one that no longer runs (its interpreter was removed) is made again. A `.venv` that has a
# PyTorch keeps it, unless TORCH asks for another version; one of another Python than PYTHON asks for
# is left for its owner to remove.

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"

asked_python=${PYTHON:-}
PYTHON=${PYTHON:-python3}
FIRST_TORCH=torch==2.13.0 # where there is none and none was asked for
purpose=${1:-build}

missing=()
need() { # need PACKAGE TEST...: the package is missing when the test fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

has() { command -v "$1" >/dev/null 2>&1; }
has_library() { has pkg-config && pkg-config --exists "$1"; }
has_shared() { "$PYTHON" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$1"; }
has_libc() { echo '#include <stdio.h>' | cc -E -xc - >/dev/null 2>&1; }

# The interpreter the extension is compiled for: that of .venv where there is one already.
interpreter() {
    if [ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null; then
        echo .venv/bin/python
    else
        echo "$PYTHON"
    fi
}
has_headers() {
    "$(interpreter)" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}
# Debian ships the module venv without what it needs to install pip; python3-venv brings that.
has_venv() { venv_works || "$PYTHON" -c 'import venv, ensurepip'; }
venv_works() { .venv/bin/python -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)' && .venv/bin/python -m pip --version; }

look() {
    hash -r
    missing=()
    need gcc has cc
    need libc6-dev has_libc
    need make has make
    need meson has meson
    need ninja-build has ninja
    need pkg-config has pkg-config
    need libsqlite3-dev has_library sqlite3
    need libjansson-dev has_library jansson
    need libcmocka-dev has_library cmocka
    need libdeflate-dev has_library libdeflate
    need liblmdb-dev has_library lmdb
    need libzstd-dev has_library libzstd
    need libcurl4-openssl-dev has_library libcurl # its headers; the library is opened when needed
    need zlib1g-dev has_library zlib # for SQLite, linked statically; shards in gz
    need python3 has "$PYTHON"
    need python3-dev has_headers
    need python3-venv has_venv
    if [ "$purpose" != wheel ]; then # tests of shards
        need zstd has zstd
        need libcurl4 has_shared libcurl.so.4
    fi
    if [ "$purpose" = lint ]; then
        need clang-format has clang-format
        need cppcheck has cppcheck
        need shellcheck has shellcheck
    fi
}

install_packages() {
    local sudo=()
    has apt-get || die "this machine lacks: ${missing[*]} (names of Debian packages); there is no apt-get here, so please install them and run the same command again."
    if [ "$(id -u)" -ne 0 ]; then
        has sudo || die "this machine lacks: ${missing[*]}. There is no sudo here; please have them installed (as root: apt-get install ${missing[*]}) and run the same command again."
        # If sudo needs a password, it is asked for here: a stage has no terminal.
        sudo -v || die "sudo was refused, and this machine lacks: ${missing[*]}."
        sudo=(sudo)
    fi
    stage 'package list' "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq ||
        echo '  (going on with the old list)'
    stage "packages: ${missing[*]}" "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "${missing[@]}"
    look
    [ ${#missing[@]} -eq 0 ] || die "these packages were installed, yet what they bring is still not found: ${missing[*]}. Is $PYTHON another Python than the system's? Then it needs its own headers and venv module."
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# The Python that was asked for runs, and is that of .venv, where there is one already. (A machine
# without any python3 is given one.)
check_python() {
    [ -n "$asked_python" ] || return 0
    [ "$asked_python" != python3 ] || has python3 || return 0
    local has_version asked_version
    asked_version=$(version_of "$asked_python") || die "PYTHON=$asked_python does not run here."
    venv_works >/dev/null 2>&1 || return 0
    has_version=$(version_of .venv/bin/python)
    [ "$has_version" = "$asked_version" ] ||
        die "PYTHON=$asked_python is Python $asked_version, and .venv was made with $has_version. To make it again: rm -rf .venv, and the same command again."
}

lacking() { .venv/bin/python tools/lacking.py "$@"; }

set_up_venv() {
    if ! venv_works >/dev/null 2>&1; then
        "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))' ||
            die "$PYTHON is $("$PYTHON" --version 2>&1); leat needs Python 3.9 or later (make PYTHON=...)."
        rm -rf .venv
        stage 'Python environment (.venv)' "$PYTHON" -m venv .venv
    fi
    local wanted=() torch=${TORCH:-torch}
    if [ "$purpose" = check ]; then
        [ -z "$(lacking jsonschema)" ] ||
            stage 'pip: jsonschema' .venv/bin/python -m pip install --disable-pip-version-check \
                --no-input jsonschema || echo '  (the summaries are not compared with their schema)'
        return 0
    fi
    [ -n "${TORCH:-}" ] || [ -z "$(lacking torch)" ] || torch=$FIRST_TORCH
    mapfile -t wanted < <(lacking "$torch" numpy h5py lmdb pillow webdataset pytest pytest-xdist jsonschema ruff setuptools)
    if [ ${#wanted[@]} -gt 0 ]; then
        stage "pip: ${wanted[*]}" .venv/bin/python -m pip install --disable-pip-version-check \
            --no-input "${wanted[@]}" ||
            die "pip could not install ${wanted[*]}. Another PyTorch can be asked for with make TORCH=torch==VERSION."
    fi
}

[ -w . ] || die "the folder $PWD cannot be written by $(id -un)."
[ "$purpose" = wheel ] || check_python
look
[ ${#missing[@]} -eq 0 ] || install_packages
[ "$purpose" = wheel ] || set_up_venv
