leat view slow
leat view fast
leat view logs/fast
leat view logs/fast/final_summary.json | head -3
# Without a name: the newest.
leat view | head -1
leat view slow | cmp - logs/slow/final_summary.txt
leat view slow --json | head -c -1 | cmp - logs/slow/final_summary.json
leat view slow --json | grep '"kind": "INPUT_BOUND"' | head -1
