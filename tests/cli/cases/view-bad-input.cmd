leat view nowhere
leat view bad/cut.json
leat view bad/empty.json
leat view bad/prose.json
leat view bad/package.json
leat view bad/list.json
leat view bad/later.json
leat view bad/folder
leat view bad/unfinished
leat view slow fast
leat view --colour
mkdir elsewhere && cd elsewhere && leat view
cd elsewhere && leat view slow
leat view slow > /dev/full
