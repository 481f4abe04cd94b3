#!/usr/bin/env bash
# test_wheel.sh WHEEL: installs the wheel in fresh environments, without network, and uses it there.
#
# In every Python from 3.9 on that this machine has (on the PATH, in pyenv, in LEAT_PYTHONS): both
# extensions load, the command finds its Python part, a program without torch runs untouched. Where
# the tree's .venv has a PyTorch for that Python, leat also counts the steps of a training.
set -euo pipefail

wheel=$(realpath "$1")
tree=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "test_wheel: $*" >&2
    exit 1
}

[[ $wheel =~ -cp39-abi3-.*manylinux_2_([0-9]+)_[a-z0-9_]+\.whl$ ]] ||
    fail "$wheel has no abi3 tag for Python 3.9 with a manylinux tag"
[ "${BASH_REMATCH[1]}" -le 36 ] || fail "$wheel needs a glibc newer than 2.36"

# One interpreter of each version.
pythons() {
    local python version seen=' '
    for python in "${PYTHON:-python3}" /usr/bin/python3 python3.{9..14} "$HOME"/.pyenv/versions/*/bin/python3 ${LEAT_PYTHONS:-}; do
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2]) if sys.version_info >= (3, 9) else sys.exit(1)' 2>/dev/null) || continue
        [[ $seen != *" $version "* ]] || continue
        seen+="$version "
        echo "$python"
    done
}

# A program that is no training: its output and exit status pass through, and a summary is written.
try_command() {
    local status=0
    leat --version | grep -q '^leat [0-9]' || fail "leat --version prints no version"
    leat run --run-name one -- python -c 'print(1)' >out 2>err
    [ "$(cat out)" = 1 ] || fail "the output did not pass through: $(cat out)"
    [ -s logs/one/final_summary.json ] || fail "no summary was written: $(cat err)"
    ! grep -q 'Python part' err || fail "leat did not find its Python part: $(cat err)"
    leat run -q -- python -c 'raise SystemExit(7)' || status=$?
    [ "$status" -eq 7 ] || fail "exit status 7 came back as $status"
    status=0
    leat check >check.out 2>&1 || status=$?
    [ "$status" -le 1 ] || fail "leat check ended with $status: $(cat check.out)"
    [ -s check.out ] || fail "leat check printed nothing"
}

try_training() {
    cat >train.py <<'PYTHON'
import leat, sys, torch
assert leat.__file__.startswith(sys.prefix), f"leat is {leat.__file__}, not the wheel's"
data = torch.utils.data.TensorDataset(torch.rand(40, 8), torch.rand(40, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in leat.DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
PYTHON
    leat run --run-name training train.py 2>err || fail "the training failed: $(cat err)"
    local steps
    steps=$(python -c 'import json; print(json.load(open("logs/training/final_summary.json"))["step_time"]["steps"])')
    [ "$steps" = 10 ] || fail "of 10 steps $steps were counted: $(cat err)"
}

# A Python's version and the folder of its packages, which may have blanks, last.
place='import sys, sysconfig; print(sys.hexversion >> 16, sysconfig.get_path("platlib"))'
read -r torch_version torch_site < <("$tree/.venv/bin/python" -c "import torch; $place" 2>/dev/null) || torch_version=none

trained=
outer_path=$PATH
while read -r python; do
    rm -rf 'with blank' logs
    mkdir 'with blank'
    "$python" -m venv 'with blank/venv'
    PATH="$work/with blank/venv/bin:$outer_path"
    hash -r
    python -m pip install -q --disable-pip-version-check --no-input --no-index --no-deps "$wheel"
    python -c 'import leat, leat._record, leat._engine' || fail "$python cannot load the extensions"
    try_command
    read -r version site < <(python -c "$place")
    if [ "$version" = "$torch_version" ]; then
        echo "$torch_site" >"$site/torch_of_the_tree.pth"
        try_training
        trained=yes
    fi
    echo "works in $(python --version 2>&1)"
    PATH=$outer_path
done < <(pythons)
[ -n "$trained" ] || echo "no training was tried: no Python here has the version of the PyTorch in .venv"
