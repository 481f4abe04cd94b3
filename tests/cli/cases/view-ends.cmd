leat view failed
leat view killed
leat view empty
leat view ranks
