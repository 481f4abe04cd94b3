leat compare fast slow --fail-on regression >/dev/null
leat compare slow fast --fail-on regression >/dev/null
leat compare slow hungry --fail-on regression >/dev/null
leat compare slow hungry --fail-on mixed >/dev/null
leat compare fast fast-again --threshold 0.1% | head -2
leat compare fast fast-again --threshold=0.001 --json | grep '"kind"'
leat compare slow fast --json | grep '"kind"'
leat compare slow
leat compare
leat compare slow fast fast-again
leat compare slow fast --threshold 3
leat compare slow fast --threshold lots
leat compare slow fast --threshold
leat compare slow fast --fail-on improvement
leat compare slow fast --quick
# Names of options are exact, a flag takes no value, and "--" ends the options.
leat compare slow fast --thresh 3%
leat compare slow fast --js
leat compare --json=1 slow fast
leat compare slow fast -j
leat compare slow fast --threshold=
leat compare --fail-on=regression -- fast slow > /dev/null
leat compare slow -- --json
leat compare slow fast -h | head -1
leat compare --help=all
