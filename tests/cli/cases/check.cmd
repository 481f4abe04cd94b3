leat check --help
leat help check
leat check --jsn
leat check --python
leat check here
PATH=/nowhere "$(command -v leat)" check | head -1 | cut -c1-50
PATH=/nowhere "$(command -v leat)" check > /dev/null
