/* test_proc_memory.c: memory of a process without what it shares. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/path.h"
#include "observe/observe.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_rollup(const char *root, const char *pid, const char *text)
{
    char *folder = path_join(root, "proc", pid, NULL);
    char *path = path_join(folder, "smaps_rollup", NULL);
    assert_int_equal(path_make_dirs(folder, NULL), 0);
    assert_int_equal(path_write_file(path, text, strlen(text), NULL), 0);
    mem_free(path);
    mem_free(folder);
}

static void parts_of_shared_pages_count(void **state)
{
    char *root = NULL;
    int64_t bytes = 7;
    assert_int_equal(path_make_temporary("pss", &root), 0);
    write_rollup(root, "12",
                 "55c0-7fff ---p 00000000 00:00 0    [rollup]\nRss:      900 kB\n"
                 "Pss:      300 kB\nPss_Anon: 200 kB\n");
    write_rollup(root, "13", "");
    write_rollup(root, "14", "Pss: 99999999999999999999 kB\n");
    assert_int_equal(proc_pss(root, 12, &bytes), 0);
    assert_int_equal(bytes, 300 * 1024);
    assert_int_equal(proc_pss(root, 13, &bytes), -ESRCH); /* it has just ended */
    assert_int_equal(proc_pss(root, 14, &bytes), -ESRCH);
    assert_true(proc_pss(root, 15, &bytes) < 0);
    assert_int_equal(bytes, 300 * 1024); /* untouched */
    const char *names[] = {"proc/12/smaps_rollup",
                           "proc/12",
                           "proc/13/smaps_rollup",
                           "proc/13",
                           "proc/14/smaps_rollup",
                           "proc/14",
                           "proc",
                           "."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = path_join(root, names[i], NULL);
        if (unlink(path) < 0)
            rmdir(path);
        mem_free(path);
    }
    rmdir(root);
    mem_free(root);
}

static void this_process_has_some(void **state)
{
    int64_t bytes = 0;
    assert_int_equal(proc_pss("/", getpid(), &bytes), 0);
    assert_true(bytes > 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_shared_pages_count),
        cmocka_unit_test(this_process_has_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
