#!/usr/bin/env bash
# test_wheel.sh WHEEL: the wheel in an environment that has nothing else: no torch, no pip config.
#
# What must hold: the command runs, finds its Python part beside itself, and a program without torch
# passes through it untouched. Where the tree's .venv has a PyTorch for the same Python, the environment
# is then shown that, and the steps of a training are counted.
set -euo pipefail

wheel=$(realpath "$1")
tree=$(realpath "$(dirname "$0")/../..")
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "test_wheel: $*" >&2
    exit 1
}

case $wheel in
*-cp39-abi3-*.whl) ;;
*) fail "$wheel is no abi3 wheel for Python 3.9" ;;
esac

mkdir 'with blank'
"$python" -m venv 'with blank/venv'
bin="$work/with blank/venv/bin"
"$bin/python" -m pip install -q --disable-pip-version-check --no-input --no-index --no-deps "$wheel"

"$bin/leat" --version | grep -q '^leat [0-9]' || fail "leat --version says nothing"
"$bin/python" -c 'import leat, leat._record, leat._engine' || fail "import leat fails"
# Nothing beyond the C library may be asked of the machine it is brought to.
! ldd "$bin/leat" | grep -E 'sqlite|jansson' || fail "leat wants libraries that may not be there"
# The stable ABI is kept to: every Python from 3.9 on that is at hand loads the same file.
site=$("$bin/python" -c 'import leat; print(leat.__path__[0])')
for other in /usr/bin/python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 ${LEAT_PYTHONS:-}; do
    "$other" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || continue
    PYTHONPATH=$(dirname "$site") "$other" -c 'import leat._record' || fail "$other cannot load leat._record"
    echo "loads in $("$other" --version 2>&1)"
done

status=0
PATH="$bin:$PATH" "$bin/leat" check >check.out 2>&1 || status=$?
[ "$status" -le 1 ] || fail "leat check ended with $status: $(cat check.out)"
[ -s check.out ] || fail "leat check says nothing"

PATH="$bin:$PATH" "$bin/leat" run --run-name one -- python -c 'print(1)' >out 2>err
[ "$(cat out)" = 1 ] || fail "the output did not pass through: $(cat out)"
[ -s logs/one/final_summary.json ] || fail "no summary was written: $(cat err)"
! grep -q 'Python part' err || fail "leat did not find its Python part: $(cat err)"

status=0
PATH="$bin:$PATH" "$bin/leat" run -q -- python -c 'raise SystemExit(7)' || status=$?
[ "$status" -eq 7 ] || fail "exit status 7 came back as $status"

# What a Python is compiled for, and where its packages are; the path, which may have blanks, last.
place='import sys, sysconfig; print(sys.hexversion >> 16, sysconfig.get_path("platlib"))'
read -r needs torch_site < <("$tree/.venv/bin/python" -c "import torch; $place" 2>/dev/null) || needs=none
read -r is site < <("$bin/python" -c "$place")
if [ "$needs" = "$is" ]; then
    echo "$torch_site" >"$site/torch_of_the_tree.pth"
    cat >train.py <<'PYTHON'
import leat, sys, torch
assert leat.__file__.startswith(sys.prefix), f"leat is {leat.__file__}, not the wheel's"
data = torch.utils.data.TensorDataset(torch.rand(40, 8), torch.rand(40, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
PYTHON
    PATH="$bin:$PATH" "$bin/leat" run --run-name training train.py 2>err || fail "the training failed: $(cat err)"
    steps=$("$bin/python" -c 'import json; print(json.load(open("logs/training/final_summary.json"))["step_time"]["steps"])')
    [ "$steps" = 10 ] || fail "of 10 steps $steps were counted: $(cat err)"
    echo 'counts the steps of a training'
else
    echo "no training: .venv has no PyTorch for this Python"
fi
echo "the wheel works: $(basename "$wheel")"
