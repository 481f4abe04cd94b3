/* torch_value.c: what torch.save() of one tensor writes, read without Python.
 *
 * It is a zip archive with stored members, below one folder of any name:
 *
 *     NAME/data.pkl     a pickle: the type, shape and strides of the tensor
 *     NAME/byteorder    "little" or "big"; older ones lack it
 *     NAME/data/0       the items of the storage
 *     NAME/version …    of no concern here
 *     central directory: one entry for each member, with its size and where it begins
 *     end of the directory (22 bytes): where the directory begins
 *
 * A pickle is a program, and this one is not run: it is compared, piece by piece, with the only
 * form that torch gives to a plain tensor (puts into the memo, which may stand anywhere, are passed
 * over):
 *
 *     \x80\x02  ctorch._utils\n_rebuild_tensor_v2\n  (
 *         ( 'storage'  ctorch\nFloatStorage\n  'KEY'  'DEVICE'  ITEMS  t  Q
 *         OFFSET  (SHAPE)  (STRIDES)  \x89  ccollections\nOrderedDict\n ) R
 *     t R .
 *
 * _rebuild_tensor_v3 has ctorch.storage\nUntypedStorage\n instead, ITEMS in bytes, and the type as
 * ctorch\nuint16\n behind the OrderedDict. Anything else (parameters, dicts, views that are not
 * contiguous) is refused with a sentence.
 */
#include "load/codec/array_value.h"

#include <endian.h>
#include <string.h>

#define END_BYTES   22
#define ENTRY_BYTES 46
#define LOCAL_BYTES 30
/* A tensor alone has seven members; one that claims 65535 is not worth the walk. */
#define MOST_MEMBERS 64

struct part {
    const uint8_t *at;
    uint64_t bytes;
};

struct zip {
    const uint8_t *bytes;
    uint64_t count;
    uint64_t directory, directory_bytes; /* within the bytes */
    uint32_t members;
};

static uint32_t get_u16(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static uint32_t get_u32(const uint8_t *at)
{
    return get_u16(at) | get_u16(at + 2) << 16;
}

static int open_zip(struct zip *zip, const uint8_t *bytes, uint64_t count)
{
    if (count < END_BYTES || memcmp(bytes, "PK\3\4", 4) != 0)
        return 0;
    const uint8_t *end = bytes + count - END_BYTES; /* torch writes no comment behind it */
    if (memcmp(end, "PK\5\6", 4) != 0)
        return 0;
    *zip = (struct zip){bytes, count, get_u32(end + 16), get_u32(end + 12), get_u16(end + 10)};
    return zip->directory <= count && zip->directory_bytes <= count - zip->directory &&
           zip->members <= MOST_MEMBERS;
}

/* The bytes of a member, from its entry in the directory. */
static int open_member(const struct zip *zip, const uint8_t *entry, struct part *ret)
{
    uint64_t bytes = get_u32(entry + 24), local = get_u32(entry + 42);
    if (get_u16(entry + 10) != 0 || get_u32(entry + 20) != bytes) /* not stored */
        return 0;
    if (local > zip->count || zip->count - local < LOCAL_BYTES ||
        memcmp(zip->bytes + local, "PK\3\4", 4) != 0)
        return 0;
    /* The name and what fills up to the alignment, as long as the member itself says. */
    uint64_t start =
        local + LOCAL_BYTES + get_u16(zip->bytes + local + 26) + get_u16(zip->bytes + local + 28);
    if (start > zip->count || bytes > zip->count - start)
        return 0;
    /* Behind the bytes stands a mark where the entry says so: they did not begin elsewhere. */
    const uint8_t *end = zip->bytes + start + bytes;
    if (get_u16(entry + 8) & 8 &&
        (zip->count - start - bytes < 4 || memcmp(end, "PK\7\10", 4) != 0))
        return 0;
    *ret = (struct part){zip->bytes + start, bytes};
    return 1;
}

/* The member `folder` + `name` below the archive's own folder: 1, 0 when there is none, -1 when it
 * is not where the directory says. */
static int find_member(const struct zip *zip, const char *folder, struct part name,
                       struct part *ret)
{
    size_t before = strlen(folder);
    uint64_t at = 0;
    for (uint32_t i = 0; i < zip->members; i++) {
        const uint8_t *entry = zip->bytes + zip->directory + at;
        if (zip->directory_bytes - at < ENTRY_BYTES || memcmp(entry, "PK\1\2", 4) != 0)
            return -1;
        uint64_t length = get_u16(entry + 28);
        uint64_t whole = ENTRY_BYTES + length + get_u16(entry + 30) + get_u16(entry + 32);
        if (whole > zip->directory_bytes - at)
            return -1;
        const uint8_t *path = entry + ENTRY_BYTES, *slash = memchr(path, '/', length);
        if (slash && (uint64_t)(path + length - slash - 1) == before + name.bytes &&
            memcmp(slash + 1, folder, before) == 0 &&
            memcmp(slash + 1 + before, name.at, name.bytes) == 0)
            return open_member(zip, entry, ret) ? 1 : -1;
        at += whole;
    }
    return 0;
}

/* ---- The pickle. Each function takes one thing and moves on, or gives 0. */

static void pass_puts(struct part *p)
{
    for (;;) {
        if (p->bytes >= 2 && *p->at == 'q')
            *p = (struct part){p->at + 2, p->bytes - 2};
        else if (p->bytes >= 5 && *p->at == 'r')
            *p = (struct part){p->at + 5, p->bytes - 5};
        else
            return;
    }
}

static int take(struct part *p, const void *wanted, size_t bytes)
{
    pass_puts(p);
    if (p->bytes < bytes || memcmp(p->at, wanted, bytes) != 0)
        return 0;
    *p = (struct part){p->at + bytes, p->bytes - bytes};
    return 1;
}
#define TAKE(p, literal) take(p, literal, sizeof literal - 1)

/* The rest of a line. */
static int take_line(struct part *p, struct part *ret)
{
    const uint8_t *end = memchr(p->at, '\n', p->bytes);
    if (!end)
        return 0;
    *ret = (struct part){p->at, (uint64_t)(end - p->at)};
    *p = (struct part){end + 1, p->bytes - ret->bytes - 1};
    return 1;
}

static int take_string(struct part *p, struct part *ret)
{
    pass_puts(p);
    if (p->bytes < 5 || *p->at != 'X' || get_u32(p->at + 1) > p->bytes - 5)
        return 0;
    *ret = (struct part){p->at + 5, get_u32(p->at + 1)};
    *p = (struct part){ret->at + ret->bytes, p->bytes - 5 - ret->bytes};
    return 1;
}

/* An integer that is not negative, of one, two, four or (a byte with the length before) up to eight
 * bytes. */
static int take_number(struct part *p, int64_t *ret)
{
    pass_puts(p);
    if (!p->bytes)
        return 0;
    uint64_t start = 1, bytes = *p->at == 'K' ? 1 : *p->at == 'M' ? 2 : *p->at == 'J' ? 4 : 0;
    if (*p->at == 0x8a && p->bytes >= 2) {
        start = 2;
        bytes = p->at[1];
    }
    if (!bytes || bytes > 8 || p->bytes - start < bytes)
        return 0;
    uint64_t value = 0;
    for (uint64_t i = 0; i < bytes; i++)
        value |= (uint64_t)p->at[start + i] << 8 * i;
    if (bytes >= 4 && value >> (8 * bytes - 1)) /* these have a sign */
        return 0;
    *ret = (int64_t)value;
    *p = (struct part){p->at + start + bytes, p->bytes - start - bytes};
    return 1;
}

/* ")", or 1 to 3 numbers and the code for so many, or "(" numbers "t". */
static int take_tuple(struct part *p, uint32_t *ret_dims, int64_t *numbers)
{
    uint32_t dims = 0;
    int marked = TAKE(p, "(");
    while (dims < LEAT_MAX_DIMS && take_number(p, &numbers[dims]))
        dims++;
    *ret_dims = dims;
    if (marked)
        return TAKE(p, "t");
    const char ends[] = {')', '\x85', '\x86', '\x87'};
    return dims <= 3 && take(p, &ends[dims], 1);
}

static int is(struct part part, const char *text)
{
    return part.bytes == strlen(text) && memcmp(part.at, text, part.bytes) == 0;
}

/* The last types came without a storage of their own. */
static const struct {
    const char *storage, *name;
    enum leat_dtype dtype;
} types[] = {
    {"BoolStorage",          "bool",       LEAT_BOOL      },
    {"CharStorage",          "int8",       LEAT_INT8      },
    {"ShortStorage",         "int16",      LEAT_INT16     },
    {"IntStorage",           "int32",      LEAT_INT32     },
    {"LongStorage",          "int64",      LEAT_INT64     },
    {"ByteStorage",          "uint8",      LEAT_UINT8     },
    {"-",                    "uint16",     LEAT_UINT16    },
    {"-",                    "uint32",     LEAT_UINT32    },
    {"-",                    "uint64",     LEAT_UINT64    },
    {"HalfStorage",          "float16",    LEAT_FLOAT16   },
    {"BFloat16Storage",      "bfloat16",   LEAT_BFLOAT16  },
    {"FloatStorage",         "float32",    LEAT_FLOAT32   },
    {"DoubleStorage",        "float64",    LEAT_FLOAT64   },
    {"ComplexFloatStorage",  "complex64",  LEAT_COMPLEX64 },
    {"ComplexDoubleStorage", "complex128", LEAT_COMPLEX128},
};

struct tensor {
    int untyped;      /* the storage has no type: the tensor names it */
    struct part type; /* its name: of the storage, or of the type itself */
    struct part key;  /* of the storage */
    int64_t offset;   /* items before the first one */
    uint32_t dims, strides;
    int64_t shape[LEAT_MAX_DIMS], stride[LEAT_MAX_DIMS];
};

static int parse_pickle(struct part p, struct tensor *t)
{
    struct part word;
    int64_t items;
    if (!TAKE(&p, "\x80\x02") || !TAKE(&p, "ctorch._utils\n_rebuild_tensor_v"))
        return 0;
    if (TAKE(&p, "3\n"))
        t->untyped = 1;
    else if (!TAKE(&p, "2\n"))
        return 0;
    if (!TAKE(&p, "(") || !TAKE(&p, "(") || !take_string(&p, &word) || !is(word, "storage"))
        return 0;
    if (t->untyped ? !TAKE(&p, "ctorch.storage\nUntypedStorage\n")
                   : !TAKE(&p, "ctorch\n") || !take_line(&p, &t->type))
        return 0;
    if (!take_string(&p, &t->key) || !take_string(&p, &word) || !take_number(&p, &items) ||
        !TAKE(&p, "t") || !TAKE(&p, "Q"))
        return 0;
    if (!take_number(&p, &t->offset) || !take_tuple(&p, &t->dims, t->shape) ||
        !take_tuple(&p, &t->strides, t->stride) || t->dims != t->strides)
        return 0;
    if (!TAKE(&p, "\x89") || !TAKE(&p, "ccollections\nOrderedDict\n") || !TAKE(&p, ")") ||
        !TAKE(&p, "R"))
        return 0;
    if (t->untyped && (!TAKE(&p, "ctorch\n") || !take_line(&p, &t->type)))
        return 0;
    return TAKE(&p, "t") && TAKE(&p, "R") && TAKE(&p, ".") && !p.bytes;
}

static int is_contiguous(const struct tensor *t)
{
    int64_t expected = 1;
    for (uint32_t d = t->dims; d-- > 0;) {
        if (t->shape[d] == 0)
            return 1; /* no items at all */
        if (t->shape[d] != 1 && t->stride[d] != expected)
            return 0;
        if (__builtin_mul_overflow(expected, t->shape[d], &expected))
            return 0;
    }
    return 1;
}

static int find_type(struct array_value *value, const struct tensor *t)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is(t->type, t->untyped ? types[i].name : types[i].storage)) {
            value->dtype = types[i].dtype;
            value->item_bytes = leat_dtype_bytes(types[i].dtype);
            return 1;
        }
    return 0;
}

/* The place of the items within the storage. */
static int find_items(const char *name, const struct zip *zip, const struct tensor *t,
                      struct array_value *value, struct leat_err *err)
{
    struct part storage;
    uint64_t before, end;
    int64_t bytes = array_value_bytes(value->item_bytes, t->dims, t->shape);
    if (find_member(zip, "data/", t->key, &storage) < 1)
        return err_set(err, -LEAT_E_CORRUPT, "%s has no whole storage of the tensor.", name);
    if (bytes < 0 || __builtin_mul_overflow((uint64_t)t->offset, value->item_bytes, &before) ||
        __builtin_add_overflow(before, (uint64_t)bytes, &end) || end > storage.bytes)
        return err_set(err, -LEAT_E_CORRUPT,
                       "%s is damaged: the tensor reaches beyond its storage of %llu bytes.", name,
                       (unsigned long long)storage.bytes);
    value->data_offset = (uint64_t)(storage.at - zip->bytes) + before;
    value->data_bytes = (uint64_t)bytes;
    return 0;
}

/* Whether the items are in this machine's byte order. */
static int has_own_order(const struct zip *zip)
{
    struct part word;
    int found = find_member(zip, "byteorder", (struct part){(const uint8_t *)"", 0}, &word);
#if __BYTE_ORDER == __LITTLE_ENDIAN
    return !found || (found > 0 && is(word, "little"));
#else
    return found > 0 && is(word, "big");
#endif
}

int torch_value_parse(const char *name, const uint8_t *bytes, uint64_t count,
                      struct array_value *ret_value, struct leat_err *err)
{
    struct zip zip;
    struct part pickle;
    struct tensor t = {0};
    struct array_value value = {0};
    if (!open_zip(&zip, bytes, count))
        return err_set(err, -LEAT_E_FOREIGN,
                       "%s is not a whole archive as torch.save() writes it (since torch 1.6).",
                       name);
    if (find_member(&zip, "data.pkl", (struct part){(const uint8_t *)"", 0}, &pickle) < 1)
        return err_set(err, -LEAT_E_CORRUPT,
                       "%s is a zip archive without the pickle that torch.save() puts into it.",
                       name);
    if (!parse_pickle(pickle, &t))
        return err_set(err, -LEAT_E_USAGE,
                       "%s holds something else than one plain tensor, which only Python can read: "
                       "save tensor.detach().clone(), alone.",
                       name);
    if (!find_type(&value, &t))
        return err_set(err, -LEAT_E_USAGE, "%s holds a tensor of the type %.*s.", name,
                       (int)(t.type.bytes < 40 ? t.type.bytes : 40), (const char *)t.type.at);
    if (!is_contiguous(&t))
        return err_set(err, -LEAT_E_USAGE,
                       "%s holds a tensor that is not contiguous: save tensor.contiguous().", name);
    if (!has_own_order(&zip))
        return err_set(err, -LEAT_E_USAGE,
                       "%s was written on a machine of the other byte order, or is damaged.", name);
    value.dims = t.dims;
    memcpy(value.shape, t.shape, sizeof value.shape);
    int failed = find_items(name, &zip, &t, &value, err);
    if (failed < 0)
        return failed;
    *ret_value = value;
    return 0;
}
