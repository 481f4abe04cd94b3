/* print_tables.c: what src/store/tables.def defines, for scripts.
 *
 *     print_tables sql       CREATE TABLE of every table
 *     print_tables columns   a line per column, tab-separated: table, description of the table,
 *                            column, type, unit, null, meaning, path
 */
#include "base/mem.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const char *const types[] = {"integer", "real", "text"};
    if (argc == 2 && strcmp(argv[1], "sql") == 0) {
        char *schema = store_schema_sql();
        fputs(schema ? schema : "", stdout);
        mem_free(schema);
        return !schema;
    }
    if (argc != 2 || strcmp(argv[1], "columns") != 0) {
        fputs("usage: print_tables sql|columns\n", stderr);
        return 2;
    }
    for (int t = 0; t < STORE_TABLES; t++)
        for (int i = 0; i < store_tables[t].column_count; i++) {
            const struct store_column *c = &store_tables[t].columns[i];
            printf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", store_tables[t].name,
                   store_tables[t].description, c->name, types[c->type], c->unit, c->null,
                   c->meaning, c->path);
        }
    return 0;
}
