leat bench --help
leat bench
leat bench --jsn x.py
leat bench --time soon x.py
leat bench --time
leat bench --memory 8X x.py
leat bench --memory 0 x.py
leat bench --batch-size 64,,128 x.py
leat bench --batch-size 1,2,3,4,5,6,7,8,9 x.py
leat bench --max-workers 65 x.py
leat bench --loader 0 x.py
leat bench nowhere.py
leat bench -- sh -c 'echo out; echo err >&2; exit 3'
leat bench --quiet -- sh -c 'echo out; echo err >&2; kill -9 $$'
leat bench --json -- true
