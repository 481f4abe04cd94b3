/* device_rows.c: see device_rows.h. */
#include "load/device/device_rows.h"

#define GATHER_THREADS 256u
#define MOST_UNITS     (1u << 30) /* of one launch, which counts in 32 bits */

/* Thread i copies unit i of the batch: unit i % units of row i / units. */
#define GATHER(size, load, store)                                                                  \
    ".visible .entry gather_" size "(.param .u64 src, .param .u64 idx, .param .u64 dst,\n"         \
    "    .param .u32 units, .param .u32 total)\n"                                                  \
    "{\n"                                                                                          \
    "    .reg .pred %p1;\n"                                                                        \
    "    .reg .b32 %r<16>;\n"                                                                      \
    "    .reg .b16 %h1;\n"                                                                         \
    "    .reg .b64 %d<16>;\n"                                                                      \
    "    mov.u32 %r1, %ctaid.x;\n"                                                                 \
    "    mov.u32 %r2, %ntid.x;\n"                                                                  \
    "    mov.u32 %r3, %tid.x;\n"                                                                   \
    "    mad.lo.u32 %r4, %r1, %r2, %r3;\n"                                                         \
    "    ld.param.u32 %r5, [total];\n"                                                             \
    "    setp.ge.u32 %p1, %r4, %r5;\n"                                                             \
    "    @%p1 bra DONE;\n"                                                                         \
    "    ld.param.u32 %r6, [units];\n"                                                             \
    "    div.u32 %r7, %r4, %r6;\n"                                                                 \
    "    mul.lo.u32 %r8, %r7, %r6;\n"                                                              \
    "    sub.u32 %r8, %r4, %r8;\n"                                                                 \
    "    ld.param.u64 %d1, [idx];\n"                                                               \
    "    cvta.to.global.u64 %d1, %d1;\n"                                                           \
    "    mul.wide.u32 %d2, %r7, 8;\n"                                                              \
    "    add.u64 %d2, %d1, %d2;\n"                                                                 \
    "    ld.global.u64 %d3, [%d2];\n"                                                              \
    "    cvt.u64.u32 %d4, %r6;\n"                                                                  \
    "    cvt.u64.u32 %d5, %r8;\n"                                                                  \
    "    mad.lo.u64 %d5, %d3, %d4, %d5;\n"                                                         \
    "    mul.lo.u64 %d5, %d5, " size ";\n"                                                         \
    "    ld.param.u64 %d6, [src];\n"                                                               \
    "    cvta.to.global.u64 %d6, %d6;\n"                                                           \
    "    add.u64 %d6, %d6, %d5;\n"                                                                 \
    "    mul.wide.u32 %d7, %r4, " size ";\n"                                                       \
    "    ld.param.u64 %d8, [dst];\n"                                                               \
    "    cvta.to.global.u64 %d8, %d8;\n"                                                           \
    "    add.u64 %d8, %d8, %d7;\n"                                                                 \
    "    " load ", [%d6];\n"                                                                       \
    "    " store ";\n"                                                                             \
    "DONE:\n"                                                                                      \
    "    ret;\n"                                                                                   \
    "}\n"

static const char kernels[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n" GATHER("16", "ld.global.v4.u32 {%r9, %r10, %r11, %r12}",
                                "st.global.v4.u32 [%d8], {%r9, %r10, %r11, %r12}")
        GATHER("4", "ld.global.u32 %r9", "st.global.u32 [%d8], %r9")
            GATHER("1", "ld.global.u8 %h1", "st.global.u8 [%d8], %h1");

static const uint32_t sizes[] = {16, 4, 1};

uint64_t device_rows_bytes(const struct leat_source *source)
{
    uint64_t bytes = 0;
    for (uint32_t f = 0; f < source->fields; f++) {
        uint64_t row_bytes = source->field[f].row_bytes;
        if (!source->ops->rows || !source->ops->rows(source, f) || row_bytes > MOST_UNITS)
            return 0;
        bytes += ((uint64_t)source->count * row_bytes + 255) / 256 * 256;
    }
    return bytes;
}

static int load_kernels(struct device *d, struct device_rows *rows)
{
    static const char *const names[] = {"gather_16", "gather_4", "gather_1"};
    int result = d->cuda->module_load(&rows->module, kernels);
    for (int i = 0; i < 3 && !result; i++)
        result = d->cuda->module_function(&rows->gather[i], rows->module, names[i]);
    return result;
}

static int take_over(struct device *d, struct device_rows *rows, const struct leat_source *source)
{
    uint64_t at = 0;
    int result = d->cuda->memory_get(&rows->memory, device_rows_bytes(source));
    for (uint32_t f = 0; f < source->fields && !result; f++) {
        uint64_t bytes = (uint64_t)source->count * source->field[f].row_bytes;
        rows->offset[f] = at;
        if (bytes)
            result =
                d->cuda->copy_in(rows->memory + at, source->ops->rows(source, f), bytes, d->copies);
        at += (bytes + 255) / 256 * 256;
    }
    return result ? result : d->cuda->stream_finish(d->copies);
}

int device_rows_open(struct device *d, struct device_rows *rows, const struct leat_source *source,
                     struct leat_err *err)
{
    struct device_stay stay;
    int result = device_enter(d, &stay);
    if (result)
        return device_failed(d, result, "its context cannot be used", err);
    result = load_kernels(d, rows);
    if (!result)
        result = take_over(d, rows, source);
    device_leave(d, &stay);
    if (!result)
        return 0;
    device_rows_close(d, rows);
    return device_failed(d, result, "the source cannot be taken over", err);
}

void device_rows_close(struct device *d, struct device_rows *rows)
{
    struct device_stay stay;
    if ((rows->memory || rows->module) && device_usable(d) && !device_enter(d, &stay)) {
        if (rows->memory)
            d->cuda->memory_free(rows->memory); /* waits for whatever still reads it */
        if (rows->module)
            d->cuda->module_free(rows->module);
        device_leave(d, &stay);
    }
    *rows = (struct device_rows){0};
}

int device_rows_gather(struct device *d, const struct device_rows *rows, struct device_slot *slot,
                       uint32_t field, uint64_t row_bytes, uint64_t offset, uint64_t indices_offset,
                       int64_t samples, struct leat_err *err)
{
    struct device_stay stay;
    int kind = row_bytes % 16 == 0 ? 0 : row_bytes % 4 == 0 ? 1 : 2;
    uint32_t units = (uint32_t)(row_bytes / sizes[kind]);
    if (!units)
        return 0;
    cu_address src = rows->memory + rows->offset[field];
    int64_t most = MOST_UNITS / units;
    int result = device_enter(d, &stay);
    if (result)
        return device_failed(d, result, "a batch cannot be gathered", err);
    for (int64_t first = 0; first < samples && !result; first += most) {
        int64_t count = samples - first < most ? samples - first : most;
        uint32_t total = (uint32_t)count * units;
        cu_address idx = slot->memory + indices_offset + (uint64_t)first * sizeof(int64_t);
        cu_address dst = slot->memory + offset + (uint64_t)first * row_bytes;
        void *arguments[] = {&src, &idx, &dst, &units, &total};
        result = d->cuda->launch(rows->gather[kind], (total + GATHER_THREADS - 1) / GATHER_THREADS,
                                 1, 1, GATHER_THREADS, 1, 1, 0, d->copies, arguments, NULL);
    }
    device_leave(d, &stay);
    return result ? device_failed(d, result, "a batch cannot be gathered", err) : 0;
}
