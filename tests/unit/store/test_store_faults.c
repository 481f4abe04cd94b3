/* test_store_faults.c: failures. The n-th write fails, for every n; the n-th allocation fails, for
 * every n, ours and SQLite's; the process is killed at the n-th write; the disk is really full.
 * In each case the database can be read afterwards, the steps in it and the rows counted as lost
 * are exactly those that were added, and a reader changes no byte.
 *
 * Writes fail in a VFS on top of the real one, of which the store does not know.
 */
#include "unit/store/store_testing.h"

#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- a VFS whose writes fail ------------------------------------------------------------- */

enum fault { FAULT_NONE, FAULT_ONCE, FAULT_FOREVER, FAULT_IO, FAULT_OPEN, FAULT_KILL };
static struct {
    enum fault fault;
    const char *where; /* only files whose path has this in it */
    int at, seen;      /* the n-th call, from 1 */
    int hits;
} plan;

static sqlite3_vfs vfs;
/* SQLite has several tables of methods for files (with and without locks): one patched copy each.
 * Writing is the same function in all of them. */
static struct {
    const sqlite3_io_methods *real;
    sqlite3_io_methods patched;
} tables[4];

static int write_fails(void)
{
    plan.seen++;
    if (plan.fault == FAULT_NONE || plan.fault == FAULT_OPEN || plan.seen < plan.at)
        return SQLITE_OK;
    if (plan.seen > plan.at && plan.fault != FAULT_FOREVER)
        return SQLITE_OK;
    plan.hits++;
    if (plan.fault == FAULT_KILL)
        raise(SIGKILL);
    return plan.fault == FAULT_IO ? SQLITE_IOERR_WRITE : SQLITE_FULL;
}

static int fault_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 at)
{
    int rc = write_fails();
    return rc ? rc : tables[0].real->xWrite(file, bytes, count, at);
}

static int fault_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    /* Truncating needs no space, but leat may be killed then, or the disk may fail. */
    int rc = plan.fault == FAULT_KILL || plan.fault == FAULT_IO ? write_fails() : SQLITE_OK;
    return rc ? rc : tables[0].real->xTruncate(file, size);
}

static int fault_open(sqlite3_vfs *self, const char *name, sqlite3_file *file, int flags,
                      int *ret_flags)
{
    sqlite3_vfs *real = self->pAppData;
    int ours = name && plan.where && strstr(name, plan.where);
    if (ours && plan.fault == FAULT_OPEN && ++plan.seen >= plan.at) {
        plan.hits++;
        return SQLITE_CANTOPEN;
    }
    int rc = real->xOpen(real, name, file, flags, ret_flags);
    if (rc == SQLITE_OK && ours) {
        int i = 0;
        while (tables[i].real && tables[i].real != file->pMethods)
            i++;
        tables[i].real = file->pMethods;
        tables[i].patched = *file->pMethods;
        tables[i].patched.xWrite = fault_write;
        tables[i].patched.xTruncate = fault_truncate;
        file->pMethods = &tables[i].patched;
    }
    return rc;
}

static void plan_fault(enum fault fault, const char *where, int at)
{
    plan.fault = fault;
    plan.where = where;
    plan.at = at;
    plan.seen = plan.hits = 0;
}

/* ---- SQLite's own allocations ------------------------------------------------------------ */

static sqlite3_mem_methods real_memory;
static long sqlite_allocations, sqlite_fail_at;

static int sqlite_memory_fails(void)
{
    return ++sqlite_allocations == sqlite_fail_at;
}
static void *fault_malloc(int bytes)
{
    return sqlite_memory_fails() ? NULL : real_memory.xMalloc(bytes);
}
static void *fault_realloc(void *p, int bytes)
{
    return sqlite_memory_fails() ? NULL : real_memory.xRealloc(p, bytes);
}

static int set_up(void **state)
{
    sqlite3_mem_methods failing;
    if (test_folder_make(state) || sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_memory))
        return -1;
    failing = real_memory;
    failing.xMalloc = fault_malloc;
    failing.xRealloc = fault_realloc;
    /* Without the cache of small blocks, every allocation comes by here. */
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &failing) ||
        sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0) || sqlite3_initialize())
        return -1;
    vfs = *sqlite3_vfs_find(NULL);
    vfs.pAppData = sqlite3_vfs_find(NULL);
    vfs.zName = "faults";
    vfs.xOpen = fault_open;
    return sqlite3_vfs_register(&vfs, 1);
}

/* ---- the run that meets them ------------------------------------------------------------- */

static const struct store_limits small = {
    .step_rows = 100,
    .first_steps = 10,
    .kept_rows = 20,
    .fold_rows = 10,
    .fold_steps = 8,
    .fold_batch = 30,
    .table_rows = 8 * 40,
};
enum { STEPS = 307, FLUSHES = 4, SAMPLES = 36, ROWS = STEPS + SAMPLES };

/* Writes STEPS steps and SAMPLES other rows in FLUSHES transactions. `committed` receives how many
 * steps a successful flush has brought to the file. */
static void write_run(struct store_writer *w, void (*committed)(int64_t steps))
{
    store_writer_limits(w, &small);
    int64_t at = 0, samples = 0;
    for (int i = 1; i <= FLUSHES; i++) {
        for (; at < STEPS * i / FLUSHES; at++) {
            struct step_row row = test_step(0, at);
            assert_int_equal(store_add_step(w, &row), 0);
        }
        for (; samples < SAMPLES * i / FLUSHES; samples++) {
            struct lost_row row = {.what = "probes", .n = samples};
            assert_int_equal(store_add_lost(w, &row), 0);
        }
        if (store_flush(w) == 0 && committed)
            committed(at);
    }
}

/* What is in the file and what was counted as lost are together what was added; `ret_lost` is the
 * rows that `lost` names. What was folded still adds up. */
static void check_run(const char *path, int64_t *ret_lost)
{
    struct store_reader *r = test_reader(path);
    int64_t steps = test_int(r, "SELECT (SELECT count(*) FROM steps) + coalesce((SELECT sum(n) "
                                "FROM step_folds),0)");
    int64_t samples = test_int(r, "SELECT count(*) FROM lost WHERE what='probes'");
    *ret_lost = test_int(r, "SELECT coalesce(sum(n),0) FROM lost WHERE what='rows'");
    assert_int_equal(steps + samples + *ret_lost, ROWS);
    assert_int_equal(test_int(r, "SELECT coalesce((SELECT sum(n) FROM step_folds),0) - "
                                 "coalesce((SELECT sum(n) FROM step_hist WHERE phase='wall'),0)"),
                     0);
    assert_int_equal(test_int(r, "SELECT count(*) FROM pragma_integrity_check WHERE "
                                 "integrity_check<>'ok'"),
                     0);
    if (*ret_lost == 0)
        assert_int_equal(test_int(r, "SELECT coalesce((SELECT sum(wall_ns) FROM steps),0) + "
                                     "coalesce((SELECT sum(wall_ns) FROM step_folds),0)"),
                         test_wall_sum(0, 0, STEPS));
    store_reader_close(r);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return ftw->level ? remove(path) : 0;
}

/* Empties the test's folder: "full" is where the run is written, "tmp" the temporary folder. */
static void fresh_folders(void)
{
    assert_int_equal(nftw(test_folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
    assert_int_equal(mkdir(test_path("full"), 0700), 0);
    assert_int_equal(mkdir(test_path("tmp"), 0700), 0);
    setenv("TMPDIR", test_path("tmp"), 1);
}

/* ---- the tests --------------------------------------------------------------------------- */

/* Lets the n-th write fail, for every n. Where the file can be made, the run is readable, and what
 * is missing is counted in it. */
static void every_write(enum fault fault)
{
    enum { MOST = 5000 };
    int n = 1, refused = 0, lossy = 0;
    for (; n < MOST; n++) {
        struct leat_err note = {""};
        struct store_writer *w = NULL;
        int64_t lost;
        fresh_folders();
        plan_fault(fault, "/full/", n);
        int code = store_writer_open(test_path("full/run.db"), &w, &note);
        if (code) {
            assert_true(note.text[0]);
            assert_int_equal(access(test_path("full/run.db"), F_OK), -1);
            assert_int_equal(access(test_path("full/run.db-journal"), F_OK), -1);
            refused++;
            continue;
        }
        write_run(w, NULL);
        code = store_writer_close(w, &note);
        int hits = plan.hits;
        plan_fault(FAULT_NONE, NULL, 0);
        if (!hits) {
            assert_int_equal(code, 0);
            assert_string_equal(note.text, "");
            break;
        }
        check_run(test_path("full/run.db"), &lost);
        assert_int_equal(lost > 0, strstr(note.text, "rows") != NULL);
        lossy += lost > 0;
    }
    assert_true(n > 30 && n < MOST); /* there were that many writes, and none was left out */
    assert_true(refused > 3 && lossy > 10);
}

static void a_full_disk_that_has_room_again(void **state)
{
    every_write(FAULT_ONCE);
}

static void a_write_that_fails(void **state)
{
    every_write(FAULT_IO);
}

/* From the n-th write on the disk is full. What was committed before stays, and the note has the
 * number of rows that are missing. */
static void a_disk_that_stays_full(void **state)
{
    int lossy = 0;
    for (int n = 1;; n++) {
        struct leat_err note = {""};
        struct store_writer *w = NULL;
        fresh_folders();
        plan_fault(FAULT_FOREVER, "/full/", n);
        if (store_writer_open(test_path("full/run.db"), &w, &note)) {
            plan_fault(FAULT_NONE, NULL, 0);
            continue;
        }
        write_run(w, NULL);
        store_writer_close(w, &note);
        int hits = plan.hits;
        plan_fault(FAULT_NONE, NULL, 0);
        if (!hits)
            break;
        struct store_reader *r = test_reader(test_path("full/run.db"));
        int64_t rows = test_int(r, "SELECT (SELECT count(*) FROM steps) + coalesce((SELECT sum(n) "
                                   "FROM step_folds),0) + (SELECT count(*) FROM lost WHERE "
                                   "what='probes')");
        store_reader_close(r);
        long long missing = 0;
        const char *number = strstr(note.text, " lacks ");
        if (number)
            missing = atoll(number + strlen(" lacks "));
        assert_int_equal(rows + missing, ROWS);
        lossy += missing > 0;
    }
    assert_true(lossy > 20);
}

static void files_that_cannot_be_opened(void **state)
{
    for (int n = 1; n <= 2; n++) { /* the database, its journal */
        struct leat_err note = {""};
        struct store_writer *w = NULL;
        fresh_folders();
        plan_fault(FAULT_OPEN, "/full/", n);
        assert_true(store_writer_open(test_path("full/run.db"), &w, &note) < 0);
        plan_fault(FAULT_NONE, NULL, 0);
        assert_non_null(strstr(note.text, "run.db"));
        assert_int_equal(access(test_path("full/run.db"), F_OK), -1);
    }
}

/* The report of a run whose disk is full is made of what was committed. */
static void a_reader_of_the_writer_on_a_full_disk(void **state)
{
    struct leat_err note = {""};
    struct store_writer *w = NULL;
    struct store_reader *r = NULL;
    fresh_folders();
    plan_fault(FAULT_NONE, "/full/", 0);
    assert_int_equal(store_writer_open(test_path("full/run.db"), &w, &note), 0);
    test_add_steps(w, 0, 0, 100);
    assert_int_equal(store_flush(w), 0);
    plan_fault(FAULT_FOREVER, "/full/", 1);
    test_add_steps(w, 0, 100, 1000);
    assert_int_equal(store_flush(w), -ENOSPC);
    assert_int_equal(store_reader_of_writer(w, &r, &note), 0);
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps"), 100);
    store_reader_close(r);
    store_writer_close(w, &note);
    plan_fault(FAULT_NONE, NULL, 0);
    assert_non_null(strstr(note.text, "lacks 900 rows"));
    assert_non_null(strstr(note.text, "full"));
}

/* Somebody removes the folder while the run goes on. */
static void a_folder_that_vanishes(void **state)
{
    struct leat_err note = {""};
    struct store_writer *w = NULL;
    char command[128];
    fresh_folders();
    assert_int_equal(store_writer_open(test_path("full/run.db"), &w, &note), 0);
    write_run(w, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", test_path("full"));
    assert_int_equal(system(command), 0);
    assert_true(store_writer_close(w, &note) < 0);
    assert_non_null(strstr(note.text, "run.db"));
}

/* A run in which one allocation may fail. Returns the rows that were lost; where the file could not
 * be made, nothing of it is left. */
static int64_t run_short_of_memory(void)
{
    struct leat_err note = {""};
    struct store_writer *w = NULL;
    int64_t lost = 0;
    int code = store_writer_open(test_path("full/run.db"), &w, &note);
    if (code == 0) {
        write_run(w, NULL);
        store_writer_close(w, &note);
    }
    mem_fail_at(0);
    sqlite_fail_at = 0;
    if (code == 0)
        check_run(test_path("full/run.db"), &lost);
    else
        assert_int_equal(access(test_path("full/run.db"), F_OK), -1);
    return lost;
}

static void every_allocation_of_ours(void **state)
{
    int lossy = 0;
    fresh_folders();
    mem_fail_at(UINT32_MAX); /* counts them */
    struct leat_err note = {""};
    struct store_writer *w = NULL;
    assert_int_equal(store_writer_open(test_path("full/run.db"), &w, &note), 0);
    write_run(w, NULL);
    assert_int_equal(store_writer_close(w, &note), 0);
    unsigned long made = mem_fail_at(0);
    assert_true(made > 20);
    for (unsigned long n = 1; n <= made; n++) {
        fresh_folders();
        mem_fail_at(n);
        lossy += run_short_of_memory() > 0;
    }
    assert_true(lossy > 3);
}

static void every_allocation_of_sqlite(void **state)
{
    int lossy = 0;
    fresh_folders();
    sqlite_allocations = 0;
    assert_int_equal(run_short_of_memory(), 0);
    long made = sqlite_allocations;
    assert_true(made > 1000);
    /* With growing strides, so that opening, preparing, folding, thinning and closing are all met.
     */
    for (long n = 1; n < made; n += 1 + n / 29) {
        fresh_folders();
        sqlite_allocations = 0;
        sqlite_fail_at = n;
        lossy += run_short_of_memory() > 0;
    }
    assert_true(lossy > 3);
}

/* ---- killed ------------------------------------------------------------------------------ */

static int report_to;
static void report_committed(int64_t steps)
{
    if (write(report_to, &steps, sizeof steps) != sizeof steps)
        _exit(3);
}

/* Runs in a child that dies at its n-th write. Returns the steps it had committed; -1: none of the
 * schema even. *ret_killed: whether it got that far. */
static int64_t killed_run(const char *path, int n, int *ret_killed)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct store_writer *w = NULL;
        report_to = pipes[1];
        plan_fault(FAULT_KILL, "/full/", n);
        if (store_writer_open(path, &w, NULL))
            _exit(2);
        report_committed(0);
        write_run(w, report_committed);
        _exit(store_writer_close(w, NULL) ? 4 : 0);
    }
    close(pipes[1]);
    int64_t committed = -1, value;
    while (read(pipes[0], &value, sizeof value) == sizeof value)
        committed = value;
    close(pipes[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    *ret_killed = WIFSIGNALED(status);
    assert_true(*ret_killed || status == 0);
    return committed;
}

static void files_as_they_are(const char *folder, char ret_text[256])
{
    char command[256];
    snprintf(command, sizeof command, "cd '%s' && stat -c '%%n %%s %%Y' * && cksum *", folder);
    FILE *f = popen(command, "r");
    size_t got = fread(ret_text, 1, 255, f);
    ret_text[got] = '\0';
    pclose(f);
}

static void killed_at_every_write(void **state)
{
    int killed = 1, journals = 0, n = 1;
    for (; killed; n++) {
        fresh_folders();
        int64_t committed = killed_run(test_path("full/run.db"), n, &killed);
        char before[256], after[256];
        struct stat st;
        journals += stat(test_path("full/run.db-journal"), &st) == 0 && st.st_size > 0;
        files_as_they_are(test_path("full"), before);
        struct store_reader *r = NULL;
        struct leat_err err = {""};
        int code = store_reader_open(test_path("full/run.db"), &r, &err);
        if (committed < 0) {
            assert_true(code < 0 && err.text[0]); /* not even the tables had been made */
        } else {
            if (code)
                fail_msg("killed at write %d: %s", n, err.text);
            assert_int_equal(test_int(r, "SELECT (SELECT count(*) FROM steps) + coalesce((SELECT "
                                         "sum(n) FROM step_folds),0)"),
                             committed);
            assert_int_equal(test_int(r, "SELECT coalesce((SELECT sum(wall_ns) FROM steps),0) + "
                                         "coalesce((SELECT sum(wall_ns) FROM step_folds),0)"),
                             test_wall_sum(0, 0, committed));
        }
        store_reader_close(r);
        files_as_they_are(test_path("full"), after);
        assert_string_equal(before, after);
    }
    assert_true(n > 30 && journals > 10); /* it did die inside transactions */
}

/* ---- a disk that is really full ---------------------------------------------------------- */

static void add_many(struct store_writer *w)
{
    for (int64_t s = 0; s < 20011; s++) {
        struct step_row row = test_step(0, s);
        if (store_add_step(w, &row))
            _exit(3);
        if (s % 500 == 0)
            store_flush(w);
    }
}

/* What is in the file and what its `lost` counts are together what was added. */
static void check_many(const char *path)
{
    struct store_reader *r = test_reader(path);
    int64_t steps = test_int(r, "SELECT count(*) FROM steps");
    int64_t lost = test_int(r, "SELECT coalesce(sum(n),0) FROM lost WHERE what='rows'");
    assert_int_equal(steps + lost, 20011);
    assert_true(steps > 500 && lost > 500);
    store_reader_close(r);
}

/* In a child, because the limit is the process's own. */
static void a_limit_on_file_size(void **state)
{
    fresh_folders();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit, unlimited;
        struct store_writer *w = NULL;
        struct leat_err note = {""};
        signal(SIGXFSZ, SIG_IGN); /* then the write fails with EFBIG instead */
        getrlimit(RLIMIT_FSIZE, &unlimited);
        limit = unlimited;
        limit.rlim_cur = 200000;
        if (store_writer_open(test_path("full/run.db"), &w, &note) ||
            setrlimit(RLIMIT_FSIZE, &limit))
            _exit(2);
        add_many(w);
        setrlimit(RLIMIT_FSIZE, &unlimited);
        _exit(store_writer_close(w, &note) || !note.text[0] ? 4 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_many(test_path("full/run.db"));
}

/* The same on a file system that is full, until some of it is freed. */
static void a_small_tmpfs(void **state)
{
    fresh_folders();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct leat_err note = {""};
        struct store_writer *w = NULL;
        char command[512];
        if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
            _exit(77);
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("leat", test_path("full"), "tmpfs", 0, "size=400k"))
            _exit(77);
        snprintf(command, sizeof command, "head -c 100000 /dev/zero > '%s'", test_path("full/x"));
        if (system(command) || store_writer_open(test_path("full/run.db"), &w, &note))
            _exit(2);
        add_many(w);
        if (unlink(test_path("full/x")) || store_writer_close(w, &note) || !note.text[0])
            _exit(4);
        snprintf(command, sizeof command, "cp '%s' '%s'", test_path("full/run.db"),
                 test_path("tmp/found.db"));
        _exit(system(command) ? 5 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: this user may not mount a tmpfs, not even in a namespace\n");
        skip();
    }
    assert_int_equal(status, 0);
    check_many(test_path("tmp/found.db"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_that_has_room_again),
        cmocka_unit_test(a_write_that_fails),
        cmocka_unit_test(a_disk_that_stays_full),
        cmocka_unit_test(files_that_cannot_be_opened),
        cmocka_unit_test(a_reader_of_the_writer_on_a_full_disk),
        cmocka_unit_test(a_folder_that_vanishes),
        cmocka_unit_test(every_allocation_of_ours),
        cmocka_unit_test(every_allocation_of_sqlite),
        cmocka_unit_test(killed_at_every_write),
        cmocka_unit_test(a_limit_on_file_size),
        cmocka_unit_test(a_small_tmpfs),
    };
    return cmocka_run_group_tests(tests, set_up, test_folder_remove);
}
