"""Turns schema.sql into a C string, so that the program carries its schema with it."""
import sys

source, target = sys.argv[1:]
with open(source, encoding="utf-8") as f:
    lines = f.read().splitlines()
with open(target, "w", encoding="utf-8") as f:
    f.write('/* Made from schema.sql by embed_schema.py. */\n#include "store/store_internal.h"\n\n')
    f.write("const char store_schema_sql[] =\n")
    for line in lines:
        f.write('    "%s\\n"\n' % line.replace("\\", "\\\\").replace('"', '\\"'))
    f.write("    ;\n")
