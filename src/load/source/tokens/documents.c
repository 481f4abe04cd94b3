/* documents.c: the documents of a file of tokens, each a sample of its own length.
 *
 * Megatron's index gives the sequences of each document; they follow each other, so a document is a
 * range of the file. In the type of the file the spans point into the mapping; converted tokens lie
 * in memory of the batch.
 */
#include "load/source/array/mapped_file.h"
#include "megatron_index.h"
#include "load/source/array/integer_convert.h"

#include "base/mem.h"
#include "load/source.h"

#include <stdio.h>

struct documents_source {
    struct leat_source base;
    struct mapped_file file;
    int64_t *starts; /* owned; in tokens; one more than there are documents */
    uint64_t item_bytes;
    integer_convert_fn *widen;
};

/* The first byte of document `index` in the mapping, or NULL if the file is too short for it now.
 */
static const uint8_t *find_tokens(const struct documents_source *d, int64_t index, uint64_t extent,
                                  int64_t *ret_tokens)
{
    if ((uint64_t)d->starts[index + 1] * d->item_bytes > extent)
        return NULL;
    *ret_tokens = d->starts[index + 1] - d->starts[index];
    return d->file.base + (uint64_t)d->starts[index] * d->item_bytes;
}

static int read_extent(struct documents_source *d, uint64_t extent,
                       const struct source_request *request, struct source_report *report,
                       struct leat_err *err)
{
    struct leat_span *spans = (struct leat_span *)(void *)request->places[0];
    for (size_t i = 0; i < request->count; i++) {
        const uint8_t *tokens = find_tokens(d, request->indices[i], extent, &spans[i].items);
        spans[i].data = tokens;
        if (!tokens) {
            spans[i].items = 0;
            if (d->starts[request->indices[i] + 1] == 0)
                continue; /* an empty document in an empty file */
            char text[200];
            snprintf(text, sizeof text, "%.100s was cut short to %llu bytes while it was in use.",
                     d->file.path, (unsigned long long)extent);
            report->bad(report, i, -LEAT_E_CORRUPT, text);
        } else if (d->widen && spans[i].items) {
            void *place =
                request->alloc(request, (uint64_t)spans[i].items * d->base.field[0].row_bytes);
            if (!place)
                return err_set(err, -ENOMEM, "No memory for a document of %lld tokens.",
                               (long long)spans[i].items);
            d->widen(place, tokens, (size_t)spans[i].items);
            spans[i].data = place;
        }
    }
    return 0;
}

static int read_documents(struct leat_source *source, const struct source_request *request,
                          struct source_report *report, struct leat_err *err)
{
    struct documents_source *d = (struct documents_source *)source;
    uint64_t extent, after = mapped_file_extent(&d->file);
    int failed;
    do {
        extent = after;
        failed = read_extent(d, extent, request, report, err);
        after = mapped_file_extent(&d->file);
    } while (!failed && after < extent);
    return failed;
}

static int get_lengths(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                       int64_t *ret_lengths, struct leat_err *err)
{
    const int64_t *starts = ((struct documents_source *)source)->starts + first;
    for (size_t i = 0; i < count; i++)
        ret_lengths[i] = starts[i + 1] - starts[i];
    return 0;
}

static void close_file(struct leat_source *source)
{
    struct documents_source *d = (struct documents_source *)source;
    mapped_file_close(&d->file);
    mem_free(d->starts);
}

static const struct source_ops documents_ops = {
    .read = read_documents, .lengths = get_lengths, .done = close_file};

static int read_index(struct documents_source *d, const struct leat_documents *asked,
                      struct megatron_index *index, struct leat_err *err)
{
    struct mapped_file file;
    int failed = mapped_file_open(&file, asked->index_path, err);
    if (failed < 0)
        return failed;
    failed =
        megatron_index_documents(asked->index_path, file.base, file.bytes, index, &d->starts, err);
    mapped_file_close(&file);
    if (failed < 0)
        return failed;
    d->item_bytes = leat_dtype_bytes(index->dtype);
    if ((uint64_t)index->tokens > d->file.bytes / d->item_bytes)
        return err_set(err, -LEAT_E_CORRUPT,
                       "%s has %llu bytes, but its index lists %lld tokens of %llu bytes.",
                       asked->path, (unsigned long long)d->file.bytes, (long long)index->tokens,
                       (unsigned long long)d->item_bytes);
    return 0;
}

static int add_field(struct documents_source *d, const struct leat_documents *asked,
                     const struct megatron_index *index, struct leat_err *err)
{
    enum leat_dtype out = asked->out == LEAT_RAW ? index->dtype : asked->out;
    if (out != index->dtype && !(d->widen = integer_convert_find(index->dtype, out)))
        return err_set(err, -LEAT_E_USAGE, "Tokens of type %s do not fit into %s.",
                       leat_dtype_name(index->dtype), leat_dtype_name(out));
    int failed = source_add_field(&d->base, asked->name ? asked->name : "tokens", out,
                                  leat_dtype_bytes(out), 1, &index->documents, NULL, err);
    if (failed < 0)
        return failed;
    d->base.field[0].variable = 1;
    if (d->widen)
        source_add_decode(&d->base, 0, leat_dtype_name(index->dtype));
    double mean = index->documents ? (double)index->tokens / (double)index->documents : 0;
    d->base.sample_ns = 50 + (d->widen ? 0.5 * mean : 0);
    return 0;
}

int leat_source_documents(const struct leat_documents *asked, struct leat_source **ret_source,
                          struct leat_err *err)
{
    struct megatron_index index;
    struct documents_source *d = (struct documents_source *)source_new(sizeof *d, &documents_ops);
    if (!d)
        return err_set(err, -ENOMEM, "No memory for a source of documents.");
    int failed = mapped_file_open(&d->file, asked->path, err);
    if (!failed)
        failed = read_index(d, asked, &index, err);
    if (!failed)
        failed = add_field(d, asked, &index, err);
    if (failed < 0) {
        leat_source_unref(&d->base);
        return failed;
    }
    snprintf(d->base.text, sizeof d->base.text,
             "documents %.100s: %lld tokens of %s; %lld samples of ", asked->path,
             (long long)index.tokens, leat_dtype_name(index.dtype), (long long)d->base.count);
    source_add_fields_text(&d->base);
    *ret_source = &d->base;
    return 0;
}
