/* golden_testing.h: a run database out of a script of tests/data/golden. Each script is executed on
 * an empty database with the schema, between base.inc and expand.inc, and opens with comments that
 * say what must be found:
 *
 *     -- expect: LABEL severity [CAUSE] [rank=N] [node=NAME]
 *                                      the findings, in their order, and no others
 *     -- never: LABEL                  not among the findings
 *     -- action: CODE [NAME=VALUE,...] what the verdict advises (diagnose/codes.h)
 *     -- also: CODE [NAME=VALUE,...]   what some finding advises
 *     -- or: CODE                      the verdict's alternative; without this line it has none
 *     -- evidence: CODE [VALUE]        of some finding; compared to as many decimals as are written
 *     -- text: TEXT                    a number or a name in the texts that is no evidence
 *     -- at: FILE:LINE                 the first place of the verdict
 *     -- predicts: SETTING             the change that the verdict's gain is for
 *     -- gains: [up to ]N % | none     that gain
 */
#ifndef LEAT_TESTS_GOLDEN_TESTING_H
#define LEAT_TESTS_GOLDEN_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/mem.h"
#include "diagnose/diagnose.h"

#define GOLDEN_TEXT_BYTES (1 << 16)

static inline const char *golden_folder(void)
{
    static char path[512];
    const char *data = getenv("LEAT_TEST_DATA");
    snprintf(path, sizeof path, "%s/golden", data ? data : "tests/data");
    return path;
}

static inline void golden_read(const char *path, char *text)
{
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be read", path);
    size_t n = fread(text, 1, GOLDEN_TEXT_BYTES - 1, file);
    text[n] = 0;
    fclose(file);
    assert_true(n < GOLDEN_TEXT_BYTES - 1);
}

static inline void golden_execute(sqlite3 *db, const char *path)
{
    static char text[GOLDEN_TEXT_BYTES];
    char *message = NULL;
    golden_read(path, text);
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", path, message);
}

static inline void golden_schema(sqlite3 *db)
{
    char *schema = store_schema_sql();
    assert_int_equal(sqlite3_exec(db, schema, NULL, NULL, NULL), SQLITE_OK);
    mem_free(schema);
}

/* Makes the database `db_path` out of the script `name` (without folder). */
static inline void golden_make(const char *name, const char *db_path)
{
    char path[1024];
    sqlite3 *db = NULL;
    unlink(db_path);
    assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
    /* Only this program reads it: nothing needs to reach a disk. */
    sqlite3_exec(db, "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY", NULL, NULL, NULL);
    golden_schema(db);
    sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    const char *const parts[] = {"base.inc", name, "expand.inc"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", golden_folder(), parts[i]);
        golden_execute(db, path);
    }
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static inline struct facts *golden_load(const char *db_path)
{
    struct store_reader *reader = NULL;
    struct facts *facts = NULL;
    struct leat_err err = {""};
    if (store_reader_open(db_path, &reader, &err) < 0)
        fail_msg("%s", err.text);
    if (facts_load(reader, &facts, &err) < 0)
        fail_msg("%s", err.text);
    store_reader_close(reader);
    return facts;
}

#endif
