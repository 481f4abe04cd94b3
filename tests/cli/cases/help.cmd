leat
leat help
leat --help
leat help view
leat view --help
leat compare -h
leat help comapre
leat comapre a b
leat frobnicate
leat run --help
# The options of leat run end at the script's name.
leat run
leat run --max-steps 0 x.py
leat run --max-step 3 x.py
leat run --run-name
leat run --quiet -- sh -c 'echo "$@"; exit 3' sh --json --quiet
leat run --quiet sh -c 'echo "$@"' sh -q --max-steps
