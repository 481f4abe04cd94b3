/* npy.c: .npy files, mapped: one field each. */
#include "gather.h"
#include "mapped_file.h"
#include "npy_header.h"

#include "base/mem.h"
#include "load/source.h"

#include <stdio.h>
#include <string.h>

struct npy_field {
    struct mapped_file file;
    struct gather gather;
    uint64_t end;      /* bytes of the file that the array needs */
    uint64_t row_span; /* from the first byte of a row to the end of its last */
};

struct npy_source {
    struct leat_source base;
    struct npy_field field[LEAT_MAX_FIELDS];
};

/* The file became shorter: rows that are still there are read, the others are bad. */
static void read_what_is_left(const struct npy_field *field, uint64_t extent,
                              const struct source_request *request, uint8_t *places,
                              struct source_report *report)
{
    const struct gather *g = &field->gather;
    uint64_t start = (uint64_t)(g->base - field->file.base);
    for (size_t i = 0; i < request->count; i++) {
        uint64_t end = start + (uint64_t)(request->indices[i] * g->stride_bytes) + field->row_span;
        if (end <= extent) {
            gather_rows(g, &request->indices[i], 1, places + i * g->row_bytes);
            continue;
        }
        char text[200];
        snprintf(text, sizeof text, "%.100s was cut short to %llu bytes while it was in use.",
                 field->file.path, (unsigned long long)extent);
        report->bad(report, i, -LEAT_E_CORRUPT, text);
    }
}

static int read_rows(struct leat_source *source, const struct source_request *request,
                     struct source_report *report, struct leat_err *err)
{
    struct npy_source *n = (struct npy_source *)source;
    for (uint32_t f = 0; f < source->fields; f++) {
        const struct npy_field *field = &n->field[f];
        uint64_t extent, after = mapped_file_extent(&field->file);
        do {
            extent = after;
            if (extent >= field->end)
                gather_rows(&field->gather, request->indices, request->count, request->places[f]);
            else
                read_what_is_left(field, extent, request, request->places[f], report);
            after = mapped_file_extent(&field->file);
        } while (after < extent && after < field->end);
    }
    return 0;
}

static void close_files(struct leat_source *source)
{
    struct npy_source *n = (struct npy_source *)source;
    for (uint32_t f = 0; f < LEAT_MAX_FIELDS; f++)
        mapped_file_close(&n->field[f].file);
}

static const struct source_ops npy_ops = {.read = read_rows, .done = close_files};

/* "x" of "/data/x.npy". */
static void name_of(const char *path, char *name, size_t bytes)
{
    const char *slash = strrchr(path, '/');
    snprintf(name, bytes, "%s", slash ? slash + 1 : path);
    size_t length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, ".npy") == 0)
        name[length - 4] = 0;
}

static void set_gather(struct npy_field *field, const struct npy_header *h, uint64_t offset)
{
    int64_t strides[LEAT_MAX_DIMS], stride = (int64_t)h->item_bytes;
    for (uint32_t d = 0; d < h->dims; d++) { /* Fortran order: the first dimension is fastest */
        strides[d] = stride;
        stride *= h->shape[d];
    }
    const uint8_t *data = field->file.base + offset + h->data_offset;
    gather_init(&field->gather, data, (uint32_t)h->item_bytes, h->dims, h->shape,
                h->fortran ? strides : NULL);
    field->gather.swap_bytes = h->swap_bytes;
    field->end = offset + h->data_offset + h->data_bytes;
    field->row_span = field->gather.row_bytes;
    if (h->fortran && h->shape[0]) /* from the first item of row 0 to its last */
        field->row_span = h->data_bytes - (uint64_t)(h->shape[0] - 1) * h->item_bytes;
}

static int add_part(struct npy_source *n, const struct leat_npy_part *part, struct leat_err *err)
{
    struct npy_field *field = &n->field[n->base.fields];
    struct npy_header h;
    char name[LEAT_NAME_BYTES];
    int failed = mapped_file_open(&field->file, part->path, err);
    if (failed < 0)
        return failed;
    uint64_t offset = (uint64_t)part->offset, bytes = field->file.bytes;
    if (part->offset < 0 || offset > bytes ||
        (part->bytes >= 0 && (uint64_t)part->bytes > bytes - offset))
        return err_set(err, -LEAT_E_CORRUPT, "%s is shorter than the part of it that is asked for.",
                       part->path);
    bytes = part->bytes >= 0 ? (uint64_t)part->bytes : bytes - offset;
    failed = npy_header_parse(part->path, field->file.base + offset, bytes, &h, err);
    if (failed < 0)
        return failed;
    if (part->bytes >= 0 && h.data_offset + h.data_bytes != bytes) {
        mem_free(h.descr);
        return err_set(err, -LEAT_E_CORRUPT, "%s: an array is not as long as the archive says.",
                       part->path);
    }
    name_of(part->path, name, sizeof name);
    failed = source_add_field(&n->base, part->name ? part->name : name, h.dtype, h.item_bytes,
                              h.dims, h.shape, h.descr, err);
    mem_free(h.descr);
    if (failed < 0)
        return failed;
    set_gather(field, &h, offset);
    n->base.sample_ns += gather_cost_ns(&field->gather);
    return 0;
}

int leat_source_npy_parts(const struct leat_npy_part *parts, uint32_t count,
                          struct leat_source **ret_source, struct leat_err *err)
{
    if (!count || count > LEAT_MAX_FIELDS)
        return err_set(err, -LEAT_E_USAGE, "A source has 1 to %d fields, not %u.", LEAT_MAX_FIELDS,
                       count);
    struct npy_source *n = (struct npy_source *)source_new(sizeof *n, &npy_ops);
    if (!n)
        return err_set(err, -ENOMEM, "No memory for a source of %u files.", count);
    for (uint32_t i = 0; i < count; i++) {
        int failed = add_part(n, &parts[i], err);
        if (failed < 0) {
            leat_source_unref(&n->base);
            return failed;
        }
    }
    snprintf(n->base.text, sizeof n->base.text, "npy %.100s%s: %lld samples of ", parts[0].path,
             count > 1 ? " and others" : "", (long long)n->base.count);
    source_add_fields_text(&n->base);
    *ret_source = &n->base;
    return 0;
}

int leat_source_npy(const char *const *paths, const char *const *names, uint32_t count,
                    struct leat_source **ret_source, struct leat_err *err)
{
    struct leat_npy_part parts[LEAT_MAX_FIELDS];
    for (uint32_t i = 0; i < count && i < LEAT_MAX_FIELDS; i++)
        parts[i] =
            (struct leat_npy_part){.path = paths[i], .name = names ? names[i] : NULL, .bytes = -1};
    return leat_source_npy_parts(parts, count, ret_source, err);
}
