/* test_store_foreign.c: files that are no run database, or no longer one. Each gives a sentence
 * with the path in it, and none a crash. */
#include "unit/store/store_testing.h"

#include <fcntl.h>
#include <sys/wait.h>

static void write_file(const char *path, const void *bytes, size_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    fclose(f);
}

static char *read_file(const char *path, size_t *ret_count)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    char *bytes = malloc((size_t)st.st_size);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    *ret_count = (size_t)st.st_size;
    return bytes;
}

static void refuses(const char *path, int code, const char *words)
{
    struct store_reader *r = NULL;
    struct leat_err err = {""};
    assert_int_equal(store_reader_open(path, &r, &err), code);
    assert_null(r);
    if (!strstr(err.text, words) || !strstr(err.text, path))
        fail_msg("expected \"%s\" and the path in: %s", words, err.text);
}

static void make_with_sql(const char *path, const char *sql)
{
    sqlite3 *db;
    unlink(path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void other_files(void **state)
{
    refuses(test_path("missing.db"), -ENOENT, "No such file");
    refuses(test_folder, -LEAT_E_FOREIGN, "not a file");
    write_file(test_path("empty.db"), "", 0);
    refuses(test_path("empty.db"), -LEAT_E_CORRUPT, "empty");
    write_file(test_path("text.db"), "hello", 5);
    refuses(test_path("text.db"), -LEAT_E_FOREIGN, "no SQLite file");
    write_file(test_path("head.db"), "SQLite format 3", 16);
    refuses(test_path("head.db"), -LEAT_E_CORRUPT, "cut short");
    make_with_sql(test_path("foreign.db"), "CREATE TABLE events(a); INSERT INTO events VALUES(1)");
    refuses(test_path("foreign.db"), -LEAT_E_FOREIGN, "not of a leat run");
    make_with_sql(test_path("like.db"), "CREATE TABLE meta(k,v); CREATE TABLE processes(a);"
                                        "CREATE TABLE steps(a)");
    refuses(test_path("like.db"), -LEAT_E_FOREIGN, "not of a leat run");
}

static void other_versions(void **state)
{
    char *schema = store_schema_sql();
    make_with_sql(test_path("old.db"), schema);
    refuses(test_path("old.db"), -LEAT_E_FOREIGN, "not of a leat run");
    make_with_sql(test_path("later.db"), schema);
    mem_free(schema);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(test_path("later.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "INSERT INTO meta VALUES('schema','99')", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    refuses(test_path("later.db"), -LEAT_E_VERSION, "schema " STORE_SCHEMA);
}

/* Reads all that readers read; what it finds does not matter, only that it comes back. */
static void read_everything(const char *path)
{
    static const char *const queries[] = {
        "SELECT sum(length(value)) FROM meta", "SELECT sum(wall_ns+input_ns) FROM steps",
        "SELECT sum(n) FROM step_folds",       "SELECT sum(length(phase)+n) FROM step_hist",
        "SELECT max(command) FROM processes",  "SELECT count(*) FROM proc_samples",
    };
    struct store_reader *r = NULL;
    struct leat_err err = {""};
    int64_t value;
    if (store_reader_open(path, &r, &err)) {
        assert_true(err.text[0]);
        return;
    }
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        sql_int(r->db, queries[i], &value);
    store_reader_close(r);
}

static char *whole_database(size_t *ret_count)
{
    struct store_writer *w = test_writer(test_path("whole.db"));
    test_add_steps(w, 0, 0, 400);
    struct process_row row = {.pid = 1, .role = "main", .command = "python train.py"};
    assert_int_equal(store_add_process(w, &row), 0);
    test_close(w);
    return read_file(test_path("whole.db"), ret_count);
}

static void cut_files(void **state)
{
    size_t count;
    char *bytes = whole_database(&count);
    int refused = 0;
    for (size_t cut = 0; cut < count; cut += 511) {
        struct store_reader *r = NULL;
        struct leat_err err = {""};
        write_file(test_path("cut.db"), bytes, cut);
        int code = store_reader_open(test_path("cut.db"), &r, &err);
        refused += code < 0;
        if (code == 0)
            fail_msg("a file cut at %zu of %zu was taken for whole", cut, count);
        assert_non_null(strstr(err.text, "cut.db"));
    }
    assert_true(refused > 50);
    free(bytes);
}

static void damaged_files(void **state)
{
    size_t count;
    char *bytes = whole_database(&count);
    uint64_t random = 88172645463325252u; /* xorshift: the same damage on every machine */
    for (int round = 0; round < 600; round++) {
        char *damaged = malloc(count);
        memcpy(damaged, bytes, count);
        for (int i = 0; i < 1 + round % 20; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            damaged[16 + random % (count - 16)] = (char)(random >> 40);
        }
        write_file(test_path("damaged.db"), damaged, count);
        read_everything(test_path("damaged.db"));
        free(damaged);
    }
    free(bytes);
}

/* A run that is still going on belongs to its writer. */
static void a_live_run_is_busy(void **state)
{
    const char *path = test_path("live.db");
    int ready[2], done[2];
    assert_int_equal(pipe(ready) | pipe(done), 0);
    unlink(path);
    pid_t child = fork();
    if (child == 0) {
        struct store_writer *w = NULL;
        char byte = 'x';
        struct leat_err note;
        close(done[1]);
        if (store_writer_open(path, &w, NULL) || store_set_meta(w, "a", "b") || store_flush(w) ||
            write(ready[1], &byte, 1) != 1)
            _exit(1);
        if (read(done[0], &byte, 1) != 0)
            _exit(1);
        _exit(store_writer_close(w, &note) ? 1 : 0);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    refuses(path, -EBUSY, "still being written");
    close(done[0]);
    close(done[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    store_reader_close(test_reader(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_files),        cmocka_unit_test(other_versions),
        cmocka_unit_test(cut_files),          cmocka_unit_test(damaged_files),
        cmocka_unit_test(a_live_run_is_busy),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
