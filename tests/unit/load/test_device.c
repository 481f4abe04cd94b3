/* test_device.c: batches on a device, with a driver that does everything as late as possible
 * (fake_gpu.c): values, kept and dropped batches, captures, fork, resident data. tests/gpu/ tests
 * the same on a real GPU. */
#include "samples.h"

#include "fake_gpu.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { N = 1003 };
static struct fake_gpu *gpu;
static void (*run)(void);
static int stream_of_consumer;

static void check_there(const struct leat_batch *batch)
{
    const float *wide = batch->device_data[0];
    const int64_t *number = batch->device_data[1];
    for (int64_t i = 0; i < batch->samples; i++) {
        assert_int_equal(number[i], batch->indices[i]);
        for (int k = 0; k < 5; k++)
            assert_true(wide[i * 5 + k] == (float)(number[i] + k));
    }
}

static struct leat_batch *next_there(struct leat_loader *l)
{
    struct leat_batch *batch = next(l);
    if (batch)
        must(leat_batch_wait(batch, &stream_of_consumer, &err));
    return batch;
}

static struct leat_loader *loader_there(struct leat_source *source, int resident, int threads)
{
    return load(source, (struct leat_loader_options){.batch_size = 64,
                                                     .order = LEAT_ORDER_FULL,
                                                     .threads = threads,
                                                     .ahead = 2,
                                                     .device = 1,
                                                     .resident = resident});
}

static void an_epoch_is_delivered(void **state)
{
    struct leat_source *source = numbered(N);
    for (int resident = 0; resident < 2; resident++)
        for (int threads = -1; threads < 4; threads += 2) {
            gpu->consumers_done = 1;
            struct leat_loader *l = loader_there(source, resident, threads);
            int gathers = gpu->gathers;
            for (uint64_t epoch = 0; epoch < 3; epoch++) {
                int64_t samples = 0;
                struct leat_batch *batch;
                must(leat_loader_start(l, epoch, &err));
                while ((batch = next_there(l))) {
                    check_there(batch);
                    samples += batch->samples;
                    leat_batch_unref(batch);
                }
                assert_int_equal(samples, N);
            }
            assert_int_equal(gpu->gathers > gathers, resident);
            leat_loader_close(l);
        }
    leat_source_unref(source);
}

/* A consumer holds up the copies; what it still reads must not change. */
static void a_batch_in_use_is_not_written(void **state)
{
    struct leat_source *source = numbered(N);
    struct leat_loader *l = loader_there(source, 0, 2);
    int64_t there[64];
    gpu->consumers_done = 1;
    must(leat_loader_start(l, 0, &err));
    struct leat_batch *kept = next_there(l), *dropped = next_there(l), *batch;
    const int64_t *memory = dropped->device_data[1];
    memcpy(there, memory, sizeof there);
    gpu->consumers_done = 0;
    leat_batch_unref(dropped); /* while the GPU uses it */
    struct leat_batch *later[3];
    for (int i = 0; i < 3; i++)
        later[i] = next(l);
    assert_ptr_equal(later[2]->device_data[1], memory); /* ready, and its copy waits */
    run();
    assert_memory_equal(there, memory, sizeof there);
    for (int i = 0; i < 3; i++)
        leat_batch_unref(later[i]);
    gpu->consumers_done = 1;
    while ((batch = next_there(l))) {
        check_there(batch);
        leat_batch_unref(batch);
    }
    check_there(kept);
    leat_loader_close(l);
    check_there(kept); /* it outlives the loader */
    leat_batch_unref(kept);
    leat_source_unref(source);
}

/* A consumer that enqueues and releases far ahead of the GPU: copies are still pending. */
static void slots_are_refilled_after_their_copy(void **state)
{
    struct leat_source *source = numbered(N);
    struct leat_loader *l = loader_there(source, 0, 2);
    struct leat_batch *batch;
    gpu->consumers_done = 1;
    must(leat_loader_start(l, 0, &err));
    while ((batch = next(l)))
        leat_batch_unref(batch);
    leat_loader_close(l);
    assert_int_equal(gpu->torn_copies, 0);
    leat_source_unref(source);
}

/* Slots that were needed once, for batches that the consumer kept, are not used in turn. */
static void as_few_slots_as_are_needed(void **state)
{
    enum { KEPT = 6, AHEAD = 2 };
    struct leat_source *source = numbered(N);
    struct leat_loader *l = loader_there(source, 0, 2);
    struct leat_batch *kept[KEPT], *batch;
    const void *used[N];
    int count = 0;
    gpu->consumers_done = 1;
    must(leat_loader_start(l, 0, &err));
    for (int i = 0; i < KEPT; i++)
        kept[i] = next_there(l);
    for (int i = 0; i < KEPT; i++)
        leat_batch_unref(kept[i]);
    must(leat_loader_start(l, 1, &err));
    while ((batch = next_there(l))) {
        int i = 0;
        while (i < count && used[i] != batch->device_data[0])
            i++;
        used[i] = batch->device_data[0];
        count += i == count;
        check_there(batch);
        leat_batch_unref(batch);
    }
    assert_in_range(count, 1, AHEAD + 2);
    leat_loader_close(l);
    leat_source_unref(source);
}

static void captures_are_not_broken(void **state)
{
    struct leat_source *source = numbered(N);
    struct leat_loader *l = loader_there(source, 0, 2);
    gpu->consumers_done = 1;
    must(leat_loader_start(l, 0, &err));
    struct leat_batch *first = next_there(l), *second = next_there(l), *batch;
    int records = gpu->context_records;
    gpu->capturing = 1;
    leat_batch_unref(first);
    leat_batch_unref(second);
    assert_int_equal(gpu->context_records, records);
    batch = next_there(l);
    check_there(batch);
    gpu->capturing = 0;
    leat_batch_unref(batch);
    while ((batch = next_there(l))) {
        check_there(batch);
        leat_batch_unref(batch);
    }
    assert_int_equal(gpu->broken_captures, 0);
    leat_loader_close(l);
    leat_source_unref(source);
}

static void a_child_calls_no_cuda(void **state)
{
    skip_with_sanitizers();
    struct leat_source *source = numbered(N);
    struct leat_loader *l = loader_there(source, 0, 2);
    gpu->consumers_done = 1;
    must(leat_loader_start(l, 0, &err));
    struct leat_batch *held = next_there(l), *batch;
    pid_t child = fork();
    if (!child) {
        int calls = gpu->calls;
        int got = leat_loader_next(l, 0, &batch, &err);
        leat_batch_unref(held);
        leat_loader_close(l);
        _exit(got >= 0 || !strstr(err.text, "fork") || gpu->calls != calls);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    leat_batch_unref(held);
    batch = next_there(l);
    check_there(batch);
    leat_batch_unref(batch);
    leat_loader_close(l);
    leat_source_unref(source);
}

/* Page-locked memory is not in the child, where its addresses may hold something else by then. */
static void a_child_that_closes_unmaps_nothing_else(void **state)
{
    skip_with_sanitizers();
    struct leat_source *source = numbered(N);
    struct leat_loader *l = loader_there(source, 0, 2);
    gpu->consumers_done = 1;
    must(leat_loader_start(l, 0, &err));
    struct leat_batch *held = next_there(l);
    struct leat_batch *second = next_there(l);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *of_held = (void *)((uintptr_t)held->data[0] / page * page);
    void *of_free = (void *)((uintptr_t)second->data[0] / page * page);
    leat_batch_unref(second);
    pid_t child = fork();
    if (!child) {
        int failed = 0;
        void *at[2] = {of_held, of_free};
        for (int i = 0; i < 2; i++)
            failed |= mmap(at[i], page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at[i];
        leat_batch_unref(held);
        leat_loader_close(l);
        unsigned char resident;
        for (int i = 0; i < 2; i++)
            failed |= mincore(at[i], page, &resident) != 0; /* ENOMEM: not mapped */
        _exit(failed);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    leat_batch_unref(held);
    leat_loader_close(l);
    leat_source_unref(source);
}

static void too_little_device_memory_is_refused(void **state)
{
    struct leat_source *source = numbered(N);
    struct leat_loader *l;
    struct leat_loader_options o = {.batch_size = 64, .device = 1, .device_bytes = 3000};
    assert_int_equal(leat_loader_new(source, &o, &l, &err), -LEAT_E_FULL);
    assert_non_null(strstr(err.text, "device_memory"));
    o = (struct leat_loader_options){.batch_size = 64, .device = 9};
    assert_true(leat_loader_new(source, &o, &l, &err) < 0);
    assert_non_null(strstr(err.text, "cuda:8"));
    leat_source_unref(source);
}

int main(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/unit/load/fake_gpu.so", getenv("LEAT_BUILD"));
    /* Its soname is libcuda.so.1: dlopen() of that name now finds it. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    gpu = dlsym(handle, "fake_gpu");
    run = (void (*)(void))dlsym(handle, "fake_gpu_run");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_delivered),
        cmocka_unit_test(a_batch_in_use_is_not_written),
        cmocka_unit_test(slots_are_refilled_after_their_copy),
        cmocka_unit_test(as_few_slots_as_are_needed),
        cmocka_unit_test(captures_are_not_broken),
        cmocka_unit_test(a_child_calls_no_cuda),
        cmocka_unit_test(a_child_that_closes_unmaps_nothing_else),
        cmocka_unit_test(too_little_device_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
