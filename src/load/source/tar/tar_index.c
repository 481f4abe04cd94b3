/* tar_index.c: see tar_index.h. */
#include "tar_index.h"

#include "base/mem.h"
#include "tar_header.h"

#include <string.h>

/* A name split at the first dot of its base name. */
struct split {
    const char *extension;
    size_t key_bytes, extension_bytes;
};

/* "__meta__" or "__meta__/x": reserved by WebDataset. */
static int is_meta(const char *name, size_t bytes)
{
    const char *slash = memchr(name, '/', bytes);
    size_t first = slash ? (size_t)(slash - name) : bytes;
    return first >= 4 && memcmp(name, "__", 2) == 0 && memcmp(name + first - 2, "__", 2) == 0;
}

/* 1: the member belongs to a sample. */
static int split_name(const char *name, size_t bytes, struct split *ret_split)
{
    const char *slash = memrchr(name, '/', bytes);
    const char *base = slash ? slash + 1 : name;
    const char *dot = memchr(base, '.', bytes - (size_t)(base - name));
    if (!dot || dot == base || is_meta(name, bytes))
        return 0;
    ret_split->key_bytes = (size_t)(dot - name);
    ret_split->extension = dot + 1;
    ret_split->extension_bytes = bytes - ret_split->key_bytes - 1;
    return 1;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static int is_extension(const struct split *split, const char *wanted)
{
    for (size_t i = 0; i < split->extension_bytes; i++)
        if (!wanted[i] || lower(split->extension[i]) != wanted[i])
            return 0;
    return !wanted[split->extension_bytes];
}

/* The key of the current sample. Names lie in the archive, but for those joined of two parts, so a
 * copy is kept. */
struct current {
    int open;
    size_t key_bytes;
    char key[TAR_KEY_BYTES];
};

static int is_current(const struct current *current, const char *name, size_t key_bytes)
{
    return current->open && current->key_bytes == key_bytes &&
           memcmp(current->key, name, key_bytes) == 0;
}

static int set_current(struct current *current, const char *path, const char *name,
                       size_t key_bytes, struct leat_err *err)
{
    if (key_bytes >= TAR_KEY_BYTES)
        return err_set(err, -LEAT_E_FOREIGN, "%s: \"%.64s...\" is a name of more than %d bytes.",
                       path, name, TAR_KEY_BYTES);
    current->open = 1;
    current->key_bytes = key_bytes;
    memcpy(current->key, name, key_bytes);
    return 0;
}

/* The next member that belongs to a sample: 1, or 0 at the end. */
static int next_member(struct tar_walk *walk, struct tar_member *member, struct split *split,
                       struct leat_err *err)
{
    for (;;) {
        int more = tar_walk_next(walk, member, err);
        if (more <= 0)
            return more;
        if (member->regular && split_name(member->name, member->name_bytes, split))
            return 1;
    }
}

static struct tar_part *last_sample(struct tar_index *index)
{
    return index->parts + (index->count - 1) * index->fields;
}

/* With skip_missing a sample that lacks a field is overwritten by the next one. */
static void end_sample(struct tar_index *index, const struct tar_wanted *wanted)
{
    if (!index->count || !wanted->skip_missing)
        return;
    const struct tar_part *parts = last_sample(index);
    for (uint32_t f = 0; f < index->fields; f++)
        if (!parts[f].block) {
            index->count--;
            return;
        }
}

static int begin_sample(struct tar_index *index, const char *path, uint64_t start,
                        struct leat_err *err)
{
    size_t count = index->count + 1;
    if (mem_reserve(&index->starts, &index->starts_capacity, count, sizeof *index->starts) < 0 ||
        mem_reserve(&index->parts, &index->parts_capacity, count * index->fields,
                    sizeof *index->parts) < 0)
        return err_set(err, -ENOMEM, "No memory for the index of %s with %zu samples.", path,
                       count);
    index->starts[index->count++] = (uint32_t)(start / TAR_BLOCK);
    memset(last_sample(index), 0, index->fields * sizeof *index->parts);
    return 0;
}

static int add_part(struct tar_index *index, const char *path, const struct tar_wanted *wanted,
                    const struct tar_member *member, const struct split *split,
                    struct leat_err *err)
{
    struct tar_part *parts = last_sample(index);
    for (uint32_t f = 0; f < index->fields; f++) {
        if (!is_extension(split, wanted->extensions[f]))
            continue;
        if (parts[f].block)
            return err_set(err, -LEAT_E_CORRUPT, "%s: %.*s is there twice.", path,
                           (int)(member->name_bytes < 256 ? member->name_bytes : 256),
                           member->name);
        if (member->bytes > UINT32_MAX)
            return err_set(err, -LEAT_E_FOREIGN, "%s: %.*s has more than 4 GiB.", path,
                           (int)(member->name_bytes < 256 ? member->name_bytes : 256),
                           member->name);
        parts[f].block = (uint32_t)(member->offset / TAR_BLOCK);
        parts[f].bytes = (uint32_t)member->bytes;
        return 0;
    }
    return 0;
}

static int parse(struct tar_index *index, struct tar_walk *walk, const struct tar_wanted *wanted,
                 struct leat_err *err)
{
    struct current current = {.open = 0};
    struct tar_member member;
    struct split split;
    int more;
    while ((more = next_member(walk, &member, &split, err)) > 0) {
        int failed = 0;
        if (!is_current(&current, member.name, split.key_bytes)) {
            end_sample(index, wanted);
            failed = set_current(&current, walk->path, member.name, split.key_bytes, err);
            if (!failed)
                failed = begin_sample(index, walk->path, member.start, err);
        }
        if (!failed)
            failed = add_part(index, walk->path, wanted, &member, &split, err);
        if (failed < 0)
            return failed;
    }
    end_sample(index, wanted);
    return more;
}

/* Growing by half leaves memory unused that would be kept as long as the source. */
static void shrink_to_fit(struct tar_index *index)
{
    void *starts = mem_resize(index->starts, index->count, sizeof *index->starts);
    void *parts = mem_resize(index->parts, index->count * index->fields, sizeof *index->parts);
    index->starts = starts ? starts : index->starts;
    index->parts = parts ? parts : index->parts;
}

int tar_index_parse(struct tar_index *index, const char *path, const uint8_t *base, uint64_t bytes,
                    const struct tar_wanted *wanted, struct leat_err *err)
{
    struct tar_walk walk = {.path = path, .base = base, .bytes = bytes};
    *index = (struct tar_index){.fields = wanted->fields};
    if (!bytes)
        return err_set(err, -LEAT_E_CORRUPT, "%s is empty.", path);
    if (bytes / TAR_BLOCK > UINT32_MAX)
        return err_set(err, -LEAT_E_FOREIGN, "%s has more than 2 TiB.", path);
    int failed = parse(index, &walk, wanted, err);
    if (failed < 0)
        tar_index_done(index);
    else if (index->count)
        shrink_to_fit(index);
    return failed;
}

void tar_index_done(struct tar_index *index)
{
    mem_free(index->starts);
    mem_free(index->parts);
    *index = (struct tar_index){0};
}

static int add_extension(const struct split *split, const char *path,
                         char extensions[][LEAT_NAME_BYTES], int count, struct leat_err *err)
{
    if (!split->extension_bytes)
        return count; /* "name.": not a field */
    if (count == LEAT_MAX_FIELDS)
        return err_set(err, -LEAT_E_FOREIGN,
                       "%s: the first sample has more than %d members; name the fields to read.",
                       path, LEAT_MAX_FIELDS);
    if (split->extension_bytes >= LEAT_NAME_BYTES)
        return err_set(err, -LEAT_E_FOREIGN,
                       "%s: the first sample has an extension of more than %d bytes; name the "
                       "fields to read.",
                       path, LEAT_NAME_BYTES - 1);
    for (size_t i = 0; i < split->extension_bytes; i++)
        extensions[count][i] = lower(split->extension[i]);
    extensions[count][split->extension_bytes] = 0;
    return count + 1;
}

int tar_index_first(const char *path, const uint8_t *base, uint64_t bytes,
                    char ret_extensions[LEAT_MAX_FIELDS][LEAT_NAME_BYTES], struct leat_err *err)
{
    struct tar_walk walk = {.path = path, .base = base, .bytes = bytes};
    struct current current = {.open = 0};
    struct tar_member member;
    struct split split;
    int count = 0, more;
    if (!bytes)
        return err_set(err, -LEAT_E_CORRUPT, "%s is empty.", path);
    while ((more = next_member(&walk, &member, &split, err)) > 0) {
        if (current.open && !is_current(&current, member.name, split.key_bytes))
            break;
        int failed = set_current(&current, path, member.name, split.key_bytes, err);
        if (!failed)
            count = failed = add_extension(&split, path, ret_extensions, count, err);
        if (failed < 0)
            return failed;
    }
    return more < 0 ? more : count;
}

int tar_index_key(struct tar_walk *walk, const char **ret_key, struct leat_err *err)
{
    struct tar_member member;
    struct split split;
    int more = walk->at > walk->bytes ? 0 : tar_walk_next(walk, &member, err);
    if (more < 0)
        return more;
    if (!more || !split_name(member.name, member.name_bytes, &split) ||
        split.key_bytes >= TAR_KEY_BYTES)
        return err_set(err, -LEAT_E_CORRUPT, "%s was changed while it was in use.", walk->path);
    *ret_key = member.name;
    return (int)split.key_bytes;
}
