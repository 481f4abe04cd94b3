leat view decode
# The verdict, why, what to do and how the run went fit the first screen.
leat view decode | head -24 | grep -cE '^(Verdict|Why|Next|Run): '
leat view decode --json | grep -A 5 '"predicted": {'
# Made the change that was predicted, another one, or one that cannot be seen.
leat compare slow fast | grep -A 1 Prediction
leat compare slow hungry | grep -A 1 Prediction
leat compare decode fast | grep -A 2 Prediction
leat view elsewhere | tail -3
