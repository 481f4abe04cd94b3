/* test_store_faults.c: bad days. The n-th write fails, for every n; the n-th allocation fails, for
 * every n, ours and SQLite's; the process is killed at the n-th write; the disk is really full.
 * Whatever happens, the number of steps that come back is exact.
 *
 * Writes are failed by a thin VFS under the real one: the store does not know of it.
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
    /* Truncating needs no room, but it is a moment to die at, or to lose the disk. */
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
    .pending_bytes = 1 << 20,
};
enum { STEPS = 307, FLUSHES = 4 };

/* Adds a row, again when memory was short: only one allocation fails in a test. */
static void add_step(struct store_writer *w, int64_t s)
{
    struct step_row row = test_step(0, s);
    int code = store_add_step(w, &row);
    if (code == -ENOMEM)
        code = store_add_step(w, &row);
    assert_int_equal(code, 0);
}

static void add_sample(struct store_writer *w, int64_t t)
{
    int code = store_add(w, "lost", "what,n", "si", "probes", t);
    if (code == -ENOMEM)
        code = store_add(w, "lost", "what,n", "si", "probes", t);
    assert_int_equal(code, 0);
}

/* Writes STEPS steps in FLUSHES transactions. Errors other than want of memory are failures. */
static void write_run(struct store_writer *w, void (*committed)(int64_t steps))
{
    store_writer_limits(w, &small);
    int64_t at = 0, samples = 0;
    for (int i = 1; i <= FLUSHES; i++) {
        for (; at < STEPS * i / FLUSHES; at++)
            add_step(w, at);
        for (; samples < 36 * i / FLUSHES; samples++)
            add_sample(w, samples);
        int code = store_flush(w);
        assert_true(code == 0 || code == -ENOMEM);
        if (code == 0 && committed)
            committed(at);
    }
}

static void check_run(const char *path)
{
    struct store_reader *r = test_reader(path);
    assert_int_equal(test_int(r, "SELECT (SELECT count(*) FROM steps) + (SELECT sum(n) FROM "
                                 "step_folds)"),
                     STEPS);
    assert_int_equal(test_int(r, "SELECT (SELECT sum(wall_ns) FROM steps) + (SELECT sum(wall_ns) "
                                 "FROM step_folds)"),
                     test_wall_sum(0, 0, STEPS));
    assert_int_equal(test_int(r, "SELECT (SELECT sum(n) FROM step_folds) - (SELECT sum(n) FROM "
                                 "step_hist WHERE phase='wall')"),
                     0);
    assert_int_equal(test_int(r, "SELECT count(*) FROM lost WHERE what='probes'"), 36);
    assert_int_equal(test_int(r, "SELECT sum(n) FROM lost WHERE what='probes'"), 35 * 36 / 2);
    store_reader_close(r);
}

/* Opens, writes, closes; returns where the database went. The caller frees it. */
static char *record_run(const char *path, struct leat_err *note)
{
    struct store_writer *w = NULL;
    int code = store_writer_open(path, &w, note);
    if (code == -ENOMEM) {
        assert_int_equal(access(path, F_OK), -1); /* nothing half-made is left */
        code = store_writer_open(path, &w, note);
    }
    if (code)
        fail_msg("%s", note->text);
    write_run(w, NULL);
    char *place = NULL;
    code = store_writer_close(w, &place, note);
    if (code)
        fail_msg("%d: %s", code, note->text);
    return place;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return ftw->level ? remove(path) : 0;
}

/* Empties the test's folder: "full" is where the run belongs, "tmp" the temporary folder. */
static void fresh_folders(void)
{
    assert_int_equal(nftw(test_folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
    assert_int_equal(mkdir(test_path("full"), 0700), 0);
    assert_int_equal(mkdir(test_path("tmp"), 0700), 0);
    setenv("TMPDIR", test_path("tmp"), 1);
}

/* ---- the tests --------------------------------------------------------------------------- */

/* Lets the n-th write fail, for every n, and sees where the run went. */
static void every_write(enum fault fault, int most, int *ret_elsewhere)
{
    int elsewhere = 0, n = 1;
    for (; n < most; n++) {
        struct leat_err note = {""};
        fresh_folders();
        plan_fault(fault, "/full/", n);
        char *place = record_run(test_path("full/run.db"), &note);
        int hits = plan.hits;
        plan_fault(FAULT_NONE, NULL, 0);
        if (!hits) {
            assert_string_equal(note.text, "");
            mem_free(place);
            break;
        }
        assert_true(note.text[0]);
        check_run(place);
        if (strstr(place, "/tmp/leat-full-")) {
            elsewhere++;
            /* A part beside the whole would be taken for the whole. */
            assert_int_equal(access(test_path("full/run.db"), F_OK), -1);
        } else {
            assert_string_equal(place, test_path("full/run.db"));
            assert_int_equal(access(test_path("full/run.db.tmp"), F_OK), -1);
        }
        assert_int_equal(access(test_path("full/run.db-journal"), F_OK), -1);
        mem_free(place);
    }
    assert_true(n > 30 && n < most); /* there were that many writes, and none was left out */
    *ret_elsewhere = elsewhere;
}

static void a_write_without_room(void **state)
{
    int elsewhere;
    every_write(FAULT_ONCE, 5000, &elsewhere);
    assert_int_equal(elsewhere, 0); /* there was room again at the end */
}

static void a_write_that_fails(void **state)
{
    int elsewhere;
    every_write(FAULT_IO, 5000, &elsewhere);
    assert_int_equal(elsewhere, 0);
}

static void a_disk_that_stays_full(void **state)
{
    int elsewhere;
    every_write(FAULT_FOREVER, 5000, &elsewhere);
    assert_true(elsewhere > 30);
}

static void files_that_cannot_be_opened(void **state)
{
    for (int n = 1; n <= 3; n++) { /* the database, its journal, the copy at the end */
        struct leat_err note = {""};
        fresh_folders();
        plan_fault(FAULT_OPEN, "/full/", n);
        char *place = record_run(test_path("full/run.db"), &note);
        plan_fault(FAULT_NONE, NULL, 0);
        check_run(place);
        mem_free(place);
    }
}

static void no_room_anywhere(void **state)
{
    struct leat_err note = {""};
    struct store_writer *w = NULL;
    char *place = NULL;
    fresh_folders();
    plan_fault(FAULT_NONE, "/full/", 0);
    assert_int_equal(store_writer_open(test_path("full/run.db"), &w, &note), 0);
    test_add_steps(w, 0, 0, 100);
    assert_int_equal(store_flush(w), 0);
    plan_fault(FAULT_FOREVER, "run.db", 1); /* in its place and in every temporary folder */
    test_add_steps(w, 0, 100, 1000);
    assert_int_equal(store_flush(w), 0); /* the run goes on all the same */
    /* What the report is made of is still there, all of it. */
    struct store_reader *r;
    assert_int_equal(store_reader_of_writer(w, &r, &note), 0);
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps"), 1000);
    store_reader_close(r);
    assert_int_equal(store_writer_close(w, &place, &note), -ENOSPC);
    assert_null(place);
    assert_non_null(strstr(note.text, "lost"));
    plan_fault(FAULT_NONE, NULL, 0);
    r = test_reader(test_path("full/run.db")); /* what was committed before is still whole */
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps"), 100);
    store_reader_close(r);
}

/* Somebody removes the folder while the run goes on. */
static void a_folder_that_vanishes(void **state)
{
    struct leat_err note = {""};
    struct store_writer *w = NULL;
    char *place = NULL, command[128];
    fresh_folders();
    assert_int_equal(store_writer_open(test_path("full/run.db"), &w, &note), 0);
    write_run(w, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", test_path("full"));
    assert_int_equal(system(command), 0);
    assert_int_equal(store_writer_close(w, &place, &note), 0);
    assert_non_null(strstr(place, "/tmp/leat-full-"));
    assert_non_null(strstr(note.text, place));
    check_run(place);
    mem_free(place);
}

static int no_locks(int fd, int command, ...)
{
    errno = ENOSYS;
    return -1;
}

/* Lustre without -o flock: the run is written at its end, and to its own place. */
static void a_file_system_without_locks(void **state)
{
    fresh_folders();
    struct leat_err note = {""};
    sqlite3_vfs *unix_vfs = sqlite3_vfs_find("unix");
    sqlite3_syscall_ptr real = unix_vfs->xGetSystemCall(unix_vfs, "fcntl");
    unix_vfs->xSetSystemCall(unix_vfs, "fcntl", (sqlite3_syscall_ptr)no_locks);
    char *place = record_run(test_path("full/run.db"), &note);
    unix_vfs->xSetSystemCall(unix_vfs, "fcntl", real);
    assert_string_equal(place, test_path("full/run.db"));
    assert_non_null(strstr(note.text, "complete"));
    check_run(place);
    mem_free(place);
}

static void every_allocation_of_ours(void **state)
{
    unsigned long n = 1, made;
    do {
        struct leat_err note = {""};
        fresh_folders();
        mem_fail_at(n);
        char *place = record_run(test_path("full/run.db"), &note);
        made = mem_fail_at(0);
        check_run(place);
        mem_free(place);
    } while (n++ < made);
    assert_true(n > 20);
}

static void every_allocation_of_sqlite(void **state)
{
    long made = 0;
    /* Thousands of them: with growing strides through a run, each stride a prime or so, such that
     * opening, preparing, folding, thinning and closing are all met. */
    for (long n = 1; n == 1 || n < made; n += 1 + n / 29) {
        struct leat_err note = {""};
        fresh_folders();
        sqlite_allocations = 0;
        sqlite_fail_at = n;
        char *place = record_run(test_path("full/run.db"), &note);
        made = sqlite_allocations;
        sqlite_fail_at = 0;
        check_run(place);
        mem_free(place);
    }
    assert_true(made > 1000);
}

/* Memory runs out exactly while the full disk is being dealt with. */
static void allocations_during_the_rescue(void **state)
{
    for (int n = 1; n < 160; n++) {
        struct leat_err note = {""};
        struct store_writer *w = NULL;
        char *place = NULL;
        fresh_folders();
        plan_fault(FAULT_NONE, "/full/", 0);
        assert_int_equal(store_writer_open(test_path("full/run.db"), &w, &note), 0);
        write_run(w, NULL);
        plan_fault(FAULT_FOREVER, "/full/", 1);
        struct step_row row = test_step(0, STEPS - 1); /* replaces the last one by itself */
        assert_int_equal(store_add_step(w, &row), 0);
        sqlite_allocations = 0;
        sqlite_fail_at = n % 2 ? n : 0;
        mem_fail_at(n % 2 ? 0 : (unsigned long)n / 2);
        int code = store_flush(w);
        assert_true(code == 0 || code == -ENOMEM);
        sqlite_fail_at = 0;
        mem_fail_at(0);
        assert_int_equal(store_writer_close(w, &place, &note), 0);
        plan_fault(FAULT_NONE, NULL, 0);
        assert_non_null(strstr(place, "/tmp/leat-full-"));
        check_run(place);
        mem_free(place);
    }
}

/* ---- killed ------------------------------------------------------------------------------ */

static int report_to;
static void tell_committed(int64_t steps)
{
    if (write(report_to, &steps, sizeof steps) != sizeof steps)
        _exit(3);
}

/* Runs in a child that dies at its n-th write. Returns the steps it had committed; -1: none of the
 * schema even. *ret_killed says whether it got that far. */
static int64_t killed_run(const char *path, int n, int *ret_killed)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct store_writer *w = NULL;
        char *place = NULL;
        report_to = pipes[1];
        plan_fault(FAULT_KILL, "/full/", n);
        if (store_writer_open(path, &w, NULL))
            _exit(2);
        tell_committed(0);
        write_run(w, tell_committed);
        _exit(store_writer_close(w, &place, NULL) ? 4 : 0);
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
        char *place = NULL;
        signal(SIGXFSZ, SIG_IGN); /* then the write fails with EFBIG instead */
        getrlimit(RLIMIT_FSIZE, &unlimited);
        limit = unlimited;
        limit.rlim_cur = 200000;
        if (store_writer_open(test_path("full/run.db"), &w, &note) ||
            setrlimit(RLIMIT_FSIZE, &limit))
            _exit(2);
        for (int64_t s = 0; s < 20011; s++) {
            struct step_row row = test_step(0, s);
            if (store_add_step(w, &row) || (s % 500 == 0 && store_flush(w)))
                _exit(3);
        }
        setrlimit(RLIMIT_FSIZE, &unlimited);
        _exit(store_writer_close(w, &place, &note) || !note.text[0] ? 4 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct store_reader *r = test_reader(test_path("full/run.db"));
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps"), 20011);
    assert_int_equal(test_int(r, "SELECT sum(wall_ns) FROM steps"), test_wall_sum(0, 0, 20011));
    store_reader_close(r);
}

static void a_small_tmpfs(void **state)
{
    fresh_folders();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct leat_err note = {""};
        struct store_writer *w = NULL;
        char *place = NULL;
        if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
            _exit(77);
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("leat", test_path("full"), "tmpfs", 0, "size=300k"))
            _exit(77);
        if (store_writer_open(test_path("full/run.db"), &w, &note))
            _exit(2);
        for (int64_t s = 0; s < 20011; s++) {
            struct step_row row = test_step(0, s);
            if (store_add_step(w, &row) || (s % 500 == 0 && store_flush(w)))
                _exit(3);
        }
        if (store_writer_close(w, &place, &note) || !strstr(note.text, place))
            _exit(4);
        _exit(access(test_path("full/run.db"), F_OK) == 0 ||
              rename(place, test_path("tmp/found.db")));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: this user may not mount a tmpfs, not even in a namespace\n");
        skip();
    }
    assert_int_equal(status, 0);
    struct store_reader *r = test_reader(test_path("tmp/found.db"));
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps"), 20011);
    store_reader_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_without_room),
        cmocka_unit_test(a_write_that_fails),
        cmocka_unit_test(a_disk_that_stays_full),
        cmocka_unit_test(files_that_cannot_be_opened),
        cmocka_unit_test(no_room_anywhere),
        cmocka_unit_test(a_folder_that_vanishes),
        cmocka_unit_test(a_file_system_without_locks),
        cmocka_unit_test(every_allocation_of_ours),
        cmocka_unit_test(every_allocation_of_sqlite),
        cmocka_unit_test(allocations_during_the_rescue),
        cmocka_unit_test(killed_at_every_write),
        cmocka_unit_test(a_limit_on_file_size),
        cmocka_unit_test(a_small_tmpfs),
    };
    return cmocka_run_group_tests(tests, set_up, test_folder_remove);
}
