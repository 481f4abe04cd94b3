#!/bin/sh
# hide_names.sh CORE LIBRARY: a static library of one object, in which only the names of the API,
# leat_*, are seen from outside.
set -eu
object=$2.o
ld -r -o "$object" --whole-archive "$1"
objcopy --wildcard --keep-global-symbol='leat_*' "$object"
rm -f "$2"
ar rcs "$2" "$object"
rm -f "$object"
