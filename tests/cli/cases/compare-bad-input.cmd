leat compare slow nowhere
leat compare bad/cut.json fast
leat compare slow bad/package.json
leat compare slow bad/later.json
leat compare bad/unfinished fast
# Without the steps of one run there is no interval; what does not overlap is still told apart.
leat compare bad/no-steps fast
leat compare fast bad/broken-db
