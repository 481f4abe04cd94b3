/* npy_header.c: see npy_header.h. A parser of the few literals that a header may hold: strings,
 * integers, True and False, tuples, lists. */
#include "npy_header.h"

#include "base/mem.h"

#include <string.h>

#define MOST_HEADER_BYTES (1u << 20)
#define MOST_NESTING      16

struct text {
    const char *at, *end;
};

static void skip_blanks(struct text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t' || *t->at == '\r'))
        t->at++;
}

/* Takes the character if it comes next, after blanks. */
static int take(struct text *t, char c)
{
    skip_blanks(t);
    if (t->at == t->end || *t->at != c)
        return 0;
    t->at++;
    return 1;
}

static int take_word(struct text *t, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(t);
    if ((size_t)(t->end - t->at) < length || memcmp(t->at, word, length) != 0)
        return 0;
    t->at += length;
    return 1;
}

/* A string without escapes (NumPy writes none here); *ret is what lies between the quotes. */
static int take_string(struct text *t, struct text *ret)
{
    skip_blanks(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return 0;
    char quote = *t->at++;
    const char *start = t->at;
    while (t->at < t->end && *t->at != quote)
        t->at += *t->at == '\\' && t->at + 1 < t->end ? 2 : 1;
    if (t->at >= t->end)
        return 0;
    *ret = (struct text){start, t->at++};
    return 1;
}

static int take_integer(struct text *t, int64_t *ret)
{
    int64_t value = 0;
    skip_blanks(t);
    const char *start = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *t->at - '0', &value))
            return 0;
    if (t->at == start || (*start == '0' && value)) /* Python refuses 03 */
        return 0;
    if (t->at < t->end && *t->at == 'L') /* as Python 2 wrote it */
        t->at++;
    *ret = value;
    return 1;
}

/* (3, 4) or (3,) or (); also a bare 3 if `bare`. */
static int take_shape(struct text *t, int bare, uint32_t *ret_dims, int64_t *shape)
{
    uint32_t dims = 0;
    if (bare && !take(t, '('))
        return *ret_dims = 1, take_integer(t, &shape[0]);
    if (!bare && !take(t, '('))
        return 0;
    while (!take(t, ')')) {
        if (dims == LEAT_MAX_DIMS || !take_integer(t, &shape[dims++]))
            return 0;
        if (!take(t, ',')) {
            if (!take(t, ')'))
                return 0;
            break;
        }
    }
    *ret_dims = dims;
    return 1;
}

/* The result of parsing a description. */
struct item {
    enum leat_dtype dtype;
    uint64_t bytes;
    uint32_t swap_bytes;
    int objects;
};

struct kind {
    char kind;
    int64_t size;
    enum leat_dtype dtype;
    uint32_t swap_bytes;
};
static const struct kind kinds[] = {
    {'b', 1,  LEAT_BOOL,       0},
    {'i', 1,  LEAT_INT8,       0},
    {'i', 2,  LEAT_INT16,      2},
    {'i', 4,  LEAT_INT32,      4},
    {'i', 8,  LEAT_INT64,      8},
    {'u', 1,  LEAT_UINT8,      0},
    {'u', 2,  LEAT_UINT16,     2},
    {'u', 4,  LEAT_UINT32,     4},
    {'u', 8,  LEAT_UINT64,     8},
    {'f', 2,  LEAT_FLOAT16,    2},
    {'f', 4,  LEAT_FLOAT32,    4},
    {'f', 8,  LEAT_FLOAT64,    8},
    {'c', 8,  LEAT_COMPLEX64,  4},
    {'c', 16, LEAT_COMPLEX128, 8},
};

static int is_foreign_order(char order)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return order == '>';
#else
    return order == '<';
#endif
}

/* "<f4", "|b1", ">i8", "<U12", "<M8[ns]", "|V7". */
static int parse_simple(struct text t, struct item *ret)
{
    char order = '|';
    int64_t size;
    if (t.at < t.end && strchr("<>|=", *t.at))
        order = *t.at++;
    if (t.at == t.end || !strchr("biufcSUVMmOa?", *t.at) || !*t.at)
        return 0;
    char kind = *t.at++;
    *ret = (struct item){.objects = kind == 'O'};
    if (kind == '?' && t.at == t.end) {
        *ret = (struct item){.dtype = LEAT_BOOL, .bytes = 1};
        return 1;
    }
    if (ret->objects && t.at == t.end)
        return 1;
    if (!take_integer(&t, &size) || size > UINT32_MAX)
        return 0;
    ret->bytes = (uint64_t)size * (kind == 'U' ? 4 : 1);
    if (t.at != t.end && kind != 'M' && kind != 'm') /* of dates: "[ns]" */
        return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind && kinds[i].size == size) {
            ret->dtype = kinds[i].dtype;
            ret->swap_bytes = is_foreign_order(order) ? kinds[i].swap_bytes : 0;
            return 1;
        }
    ret->dtype = LEAT_RAW;
    return 1;
}

static int parse_descr(struct text *t, int nesting, struct item *ret);

/* ")" or ",)"; otherwise takes nothing. */
static int take_member_end(struct text *t)
{
    const char *before = t->at;
    take(t, ',');
    if (take(t, ')'))
        return 1;
    t->at = before;
    return 0;
}

/* ('name', '<f4') or ('name', '<f4', (2, 3)) or (('title', 'name'), …). */
static int parse_member(struct text *t, int nesting, struct item *sum)
{
    struct text name;
    struct item item;
    uint32_t dims;
    int64_t shape[LEAT_MAX_DIMS];
    if (!take(t, '('))
        return 0;
    if (take(t, '(')) {
        if (!take_string(t, &name) || !take(t, ',') || !take_string(t, &name) || !take(t, ')'))
            return 0;
    } else if (!take_string(t, &name)) {
        return 0;
    }
    if (!take(t, ',') || !parse_descr(t, nesting + 1, &item))
        return 0;
    if (!take_member_end(t)) {
        if (!take(t, ',') || !take_shape(t, 1, &dims, shape) || !take_member_end(t))
            return 0;
        for (uint32_t d = 0; d < dims; d++)
            if (__builtin_mul_overflow(item.bytes, (uint64_t)shape[d], &item.bytes))
                return 0;
    }
    sum->objects |= item.objects;
    return !__builtin_add_overflow(sum->bytes, item.bytes, &sum->bytes);
}

static int parse_descr(struct text *t, int nesting, struct item *ret)
{
    struct text simple;
    if (nesting > MOST_NESTING)
        return 0;
    if (take_string(t, &simple))
        return parse_simple(simple, ret);
    if (!take(t, '['))
        return 0;
    *ret = (struct item){.dtype = LEAT_RAW};
    while (!take(t, ']')) {
        if (!parse_member(t, nesting, ret))
            return 0;
        if (!take(t, ','))
            return take(t, ']');
    }
    return 1;
}

enum { SEEN_DESCR = 1, SEEN_ORDER = 2, SEEN_SHAPE = 4, SEEN_ALL = 7 };

struct dictionary {
    struct item item;
    struct text descr; /* as written */
    int seen;
};

static int parse_entry(struct text *t, struct npy_header *h, struct dictionary *d)
{
    struct text key;
    int which;
    if (!take_string(t, &key) || !take(t, ':'))
        return 0;
    skip_blanks(t);
    size_t length = (size_t)(key.end - key.at);
    if (length == 5 && memcmp(key.at, "descr", 5) == 0) {
        which = SEEN_DESCR;
        d->descr.at = t->at;
        if (!parse_descr(t, 0, &d->item))
            return 0;
        d->descr.end = t->at;
    } else if (length == 13 && memcmp(key.at, "fortran_order", 13) == 0) {
        which = SEEN_ORDER;
        h->fortran = take_word(t, "True");
        if (!h->fortran && !take_word(t, "False"))
            return 0;
    } else if (length == 5 && memcmp(key.at, "shape", 5) == 0) {
        which = SEEN_SHAPE;
        if (!take_shape(t, 0, &h->dims, h->shape))
            return 0;
    } else {
        return 0;
    }
    if (d->seen & which)
        return 0;
    d->seen |= which;
    return 1;
}

static int parse_dictionary(struct text *t, struct npy_header *h, struct dictionary *d)
{
    if (!take(t, '{'))
        return 0;
    while (!take(t, '}')) {
        if (!parse_entry(t, h, d))
            return 0;
        if (!take(t, ',')) {
            if (!take(t, '}'))
                return 0;
            break;
        }
    }
    skip_blanks(t);
    return d->seen == SEEN_ALL && t->at == t->end;
}

/* The dictionary: its start and length. */
static int find_dictionary(const char *path, const uint8_t *bytes, uint64_t count,
                           struct text *ret_text, struct leat_err *err)
{
    uint64_t start = 10, length;
    if (count < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return err_set(err, -LEAT_E_FOREIGN, "%s is not a .npy file.", path);
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7])
        return err_set(err, -LEAT_E_VERSION,
                       "%s is a .npy file of version %u.%u; 1.0, 2.0 and 3.0 are known.", path,
                       bytes[6], bytes[7]);
    length = bytes[8] | (uint64_t)bytes[9] << 8;
    if (bytes[6] > 1) {
        if (count < 12)
            return err_set(err, -LEAT_E_CORRUPT, "%s ends within its header.", path);
        length |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
        start = 12;
    }
    if (length > MOST_HEADER_BYTES || length > count - start)
        return err_set(err, -LEAT_E_CORRUPT, "%s ends within its header of %llu bytes.", path,
                       (unsigned long long)length);
    *ret_text = (struct text){(const char *)bytes + start, (const char *)bytes + start + length};
    return 0;
}

/* Checks the shape against the bytes that are there. */
static int check_extent(const char *path, struct npy_header *h, uint64_t left, struct leat_err *err)
{
    uint64_t bytes = h->item_bytes;
    int fits = 1;
    for (uint32_t d = h->dims; d-- > 0 && fits;)
        fits = !__builtin_mul_overflow(bytes, (uint64_t)h->shape[d], &bytes);
    if (!fits)
        return err_set(err, -LEAT_E_CORRUPT, "%s has a shape that does not fit.", path);
    if (bytes > left)
        return err_set(err, -LEAT_E_CORRUPT,
                       "%s is cut short: its shape needs %llu bytes of data, it has %llu.", path,
                       (unsigned long long)bytes, (unsigned long long)left);
    h->data_bytes = bytes;
    return 0;
}

/* Whether the first dimension can count samples. */
static int check_rows(const char *path, const struct npy_header *h, struct leat_err *err)
{
    if (!h->dims)
        return err_set(err, -LEAT_E_USAGE,
                       "%s holds a single item; a first dimension must count the samples.", path);
    int empty = !h->item_bytes;
    for (uint32_t d = 1; d < h->dims; d++)
        empty |= !h->shape[d];
    if (empty) /* else a few bytes could claim 2^62 samples */
        return err_set(err, -LEAT_E_USAGE, "%s has samples without a single byte.", path);
    return 0;
}

static int parse(const char *path, const uint8_t *bytes, uint64_t count, int rows,
                 struct npy_header *ret_header, struct leat_err *err)
{
    struct text text;
    struct dictionary d = {0};
    struct npy_header h = {0};
    int failed = find_dictionary(path, bytes, count, &text, err);
    if (failed < 0)
        return failed;
    h.data_offset = (uint64_t)((const uint8_t *)text.end - bytes);
    if (!parse_dictionary(&text, &h, &d))
        return err_set(err, -LEAT_E_CORRUPT, "%s has a header that NumPy would not write.", path);
    if (d.item.objects)
        return err_set(err, -LEAT_E_USAGE,
                       "%s holds Python objects, which only Python can read: save it with a type "
                       "of fixed size.",
                       path);
    h.dtype = d.item.dtype;
    h.item_bytes = d.item.bytes;
    h.swap_bytes = d.item.swap_bytes;
    failed = rows ? check_rows(path, &h, err) : 0;
    if (!failed)
        failed = check_extent(path, &h, count - h.data_offset, err);
    if (failed < 0)
        return failed;
    if (h.dtype == LEAT_RAW) {
        size_t length = (size_t)(d.descr.end - d.descr.at);
        if (!(h.descr = mem_alloc(length + 1)))
            return err_set(err, -ENOMEM, "No memory for the header of %s.", path);
        memcpy(h.descr, d.descr.at, length);
    }
    *ret_header = h;
    return 0;
}

int npy_header_parse(const char *path, const uint8_t *bytes, uint64_t count,
                     struct npy_header *ret_header, struct leat_err *err)
{
    return parse(path, bytes, count, 1, ret_header, err);
}

int npy_header_parse_value(const char *path, const uint8_t *bytes, uint64_t count,
                           struct npy_header *ret_header, struct leat_err *err)
{
    return parse(path, bytes, count, 0, ret_header, err);
}
