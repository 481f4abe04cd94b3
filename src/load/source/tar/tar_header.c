/* tar_header.c: see tar_header.h. */
#include "tar_header.h"

#include <string.h>

/* Offsets in a header. */
enum {
    NAME_AT = 0,
    NAME_BYTES = 100,
    SIZE_AT = 124,
    SIZE_BYTES = 12,
    CHECKSUM_AT = 148,
    CHECKSUM_BYTES = 8,
    TYPE_AT = 156,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_BYTES = 155
};

/* What extended headers declare for the next member; name NULL: nothing. */
struct given {
    const char *name;
    size_t name_bytes;
    int has_size;
    uint64_t size;
};

static int damaged(const struct tar_walk *walk, uint64_t at, const char *what, struct leat_err *err)
{
    return err_set(err, -LEAT_E_CORRUPT, "%s: the header at byte %llu %s.", walk->path,
                   (unsigned long long)at, what);
}

/* Octal digits with blanks around them, up to a NUL; -1 for anything else. */
static int64_t parse_octal(const uint8_t *field, size_t bytes)
{
    size_t i = 0;
    int64_t value = 0;
    while (i < bytes && field[i] == ' ')
        i++;
    for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++) {
        if (value >> 59)
            return -1;
        value = value * 8 + (field[i] - '0');
    }
    while (i < bytes && field[i] == ' ')
        i++;
    return i == bytes || field[i] == 0 ? value : -1;
}

/* Octal, or GNU's base 256: 0x80, then a big-endian number. */
static int64_t parse_number(const uint8_t *field, size_t bytes)
{
    if (field[0] != 0x80)
        return parse_octal(field, bytes);
    int64_t value = 0;
    for (size_t i = 1; i < bytes; i++) {
        if (value >> 55)
            return -1;
        value = value << 8 | field[i];
    }
    return value;
}

/* The sum of all bytes, with the checksum field as blanks. Some old writers summed signed bytes. */
static int checksum_holds(const uint8_t *block)
{
    uint32_t sum = 0;
    int32_t as_signed = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        sum += block[i];
        as_signed += (int8_t)block[i];
    }
    for (size_t i = CHECKSUM_AT; i < CHECKSUM_AT + CHECKSUM_BYTES; i++) {
        sum += (uint32_t)' ' - block[i];
        as_signed += ' ' - (int8_t)block[i];
    }
    int64_t declared = parse_octal(block + CHECKSUM_AT, CHECKSUM_BYTES);
    return declared == (int64_t)sum || declared == as_signed;
}

/* Owner, time and so on are not needed; but one that is not a number shows that this is no header,
 * or a damaged one whose checksum happens to match. 0xff begins a negative number. */
static int numbers_hold(const uint8_t *header)
{
    static const struct {
        uint16_t at, bytes;
    } fields[] = {
        {100, 8 }, /* mode */
        {108, 8 }, /* user */
        {116, 8 }, /* group */
        {136, 12}, /* time */
        {329, 8 }, /* device, two parts */
        {337, 8 }
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (header[fields[i].at] != 0xff &&
            parse_number(header + fields[i].at, fields[i].bytes) < 0)
            return 0;
    return 1;
}

static int is_zero(const uint8_t *block)
{
    for (size_t i = 0; i < TAR_BLOCK; i++)
        if (block[i])
            return 0;
    return 1;
}

/* Types without data, whatever their size field: links, devices, folders, pipes. */
static int is_without_data(uint8_t type)
{
    return type >= '1' && type <= '6';
}

/* One "length key=value\n" of a pax header. */
struct record {
    const char *key, *value;
    size_t key_bytes, value_bytes;
};

/* *text is set to what follows the record. */
static int parse_record(const struct tar_walk *walk, uint64_t at, const uint8_t **text,
                        const uint8_t *end, struct record *ret_record, struct leat_err *err)
{
    const uint8_t *p = *text;
    uint64_t length = 0;
    for (; p < end && *p >= '0' && *p <= '9' && length < UINT32_MAX; p++)
        length = length * 10 + (uint64_t)(*p - '0');
    if (p == *text || p == end || *p != ' ' || length > (uint64_t)(end - *text) ||
        length < (uint64_t)(p - *text) + 3)
        return damaged(walk, at, "has a pax record of a length that does not fit", err);
    const uint8_t *key = p + 1, *last = *text + length - 1;
    const uint8_t *equals = memchr(key, '=', (size_t)(last - key));
    if (!equals || *last != '\n')
        return damaged(walk, at, "has a pax record that is not \"key=value\"", err);
    *ret_record = (struct record){.key = (const char *)key,
                                  .key_bytes = (size_t)(equals - key),
                                  .value = (const char *)equals + 1,
                                  .value_bytes = (size_t)(last - equals - 1)};
    *text += length;
    return 0;
}

static int is_text(const char *text, size_t bytes, const char *wanted)
{
    return bytes == strlen(wanted) && memcmp(text, wanted, bytes) == 0;
}

static int parse_pax_size(const char *text, size_t bytes, uint64_t *ret_size)
{
    uint64_t size = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || size > UINT64_MAX / 16)
            return -1;
        size = size * 10 + (uint64_t)(text[i] - '0');
    }
    *ret_size = size;
    return bytes ? 0 : -1;
}

static int parse_pax(const struct tar_walk *walk, uint64_t at, const uint8_t *text, uint64_t bytes,
                     int global, struct given *given, struct leat_err *err)
{
    const uint8_t *end = text + bytes;
    while (text < end) {
        struct record r = {0};
        int failed = parse_record(walk, at, &text, end, &r, err);
        if (failed < 0)
            return failed;
        int is_path = is_text(r.key, r.key_bytes, "path"),
            is_size = is_text(r.key, r.key_bytes, "size");
        if (global && (is_path || is_size))
            return err_set(err, -LEAT_E_FOREIGN,
                           "%s: the global pax header at byte %llu gives all members one %s.",
                           walk->path, (unsigned long long)at, is_path ? "path" : "size");
        if (r.key_bytes >= 11 && memcmp(r.key, "GNU.sparse.", 11) == 0)
            return err_set(err, -LEAT_E_FOREIGN,
                           "%s: the member at byte %llu is a sparse file, which cannot be read in "
                           "place; tar without --sparse writes it as a plain one.",
                           walk->path, (unsigned long long)at);
        if (is_path) {
            given->name = r.value;
            given->name_bytes = r.value_bytes;
        } else if (is_size) {
            if (parse_pax_size(r.value, r.value_bytes, &given->size) < 0)
                return damaged(walk, at, "has a pax size that is no number", err);
            given->has_size = 1;
        }
    }
    return 0;
}

/* The name in the header. Only POSIX's ustar has a prefix: GNU keeps times there. */
static void own_name(struct tar_walk *walk, const uint8_t *header, struct tar_member *member)
{
    const char *name = (const char *)header + NAME_AT, *prefix = (const char *)header + PREFIX_AT;
    member->name = name;
    member->name_bytes = strnlen(name, NAME_BYTES);
    if (memcmp(header + MAGIC_AT, "ustar\0", 6) != 0 || !*prefix)
        return;
    size_t before = strnlen(prefix, PREFIX_BYTES);
    memcpy(walk->joined, prefix, before);
    walk->joined[before] = '/';
    memcpy(walk->joined + before + 1, name, member->name_bytes);
    member->name = walk->joined;
    member->name_bytes += before + 1;
}

/* Reads the header at walk->at: its type and the size of what follows; checks both. */
static int check_header(const struct tar_walk *walk, uint8_t *ret_type, uint64_t *ret_size,
                        struct leat_err *err)
{
    const uint8_t *header = walk->base + walk->at;
    if (!checksum_holds(header))
        return walk->at ? damaged(walk, walk->at, "does not have its checksum", err)
                        : err_set(err, -LEAT_E_FOREIGN, "%s is not a tar archive.", walk->path);
    int64_t size = parse_number(header + SIZE_AT, SIZE_BYTES);
    if (size < 0 || !numbers_hold(header))
        return damaged(walk, walk->at, "has an invalid number", err);
    *ret_type = header[TYPE_AT];
    *ret_size = (uint64_t)size;
    return 0;
}

static int check_extent(const struct tar_walk *walk, uint64_t size, struct leat_err *err)
{
    uint64_t left = walk->bytes - walk->at - TAR_BLOCK;
    if (size <= left)
        return 0;
    return err_set(err, -LEAT_E_CORRUPT,
                   "%s is cut short: the member at byte %llu has %llu bytes, of which %llu are "
                   "there.",
                   walk->path, (unsigned long long)walk->at, (unsigned long long)size,
                   (unsigned long long)left);
}

/* After the data, which is padded to whole blocks; the last padding may be missing. */
static void step_over(struct tar_walk *walk, uint64_t size)
{
    uint64_t left = walk->bytes - walk->at - TAR_BLOCK;
    uint64_t whole = (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    walk->at += TAR_BLOCK + (whole < left ? whole : left);
}

static int take_member(struct tar_walk *walk, uint8_t type, uint64_t size,
                       const struct given *given, struct tar_member *member, struct leat_err *err)
{
    if (type == 'S')
        return err_set(err, -LEAT_E_FOREIGN,
                       "%s: the member at byte %llu is a sparse file, which cannot be read in "
                       "place; tar without --sparse writes it as a plain one.",
                       walk->path, (unsigned long long)walk->at);
    own_name(walk, walk->base + walk->at, member);
    if (given->name) {
        member->name = given->name;
        member->name_bytes = given->name_bytes;
    }
    if (given->has_size)
        size = given->size;
    if (is_without_data(type))
        size = 0;
    int failed = check_extent(walk, size, err);
    if (failed < 0)
        return failed;
    /* In old archives a folder was a file whose name ends in a slash. */
    int is_folder = member->name_bytes && member->name[member->name_bytes - 1] == '/';
    member->regular = type == '0' || type == '7' || (type == 0 && !is_folder);
    member->offset = walk->at + TAR_BLOCK;
    member->bytes = size;
    step_over(walk, size);
    return 1;
}

int tar_walk_next(struct tar_walk *walk, struct tar_member *ret_member, struct leat_err *err)
{
    struct given given = {0};
    ret_member->start = walk->at;
    for (;;) {
        uint8_t type = 0;
        uint64_t size = 0, at = walk->at;
        if (walk->bytes - at < TAR_BLOCK)
            return err_set(err, -LEAT_E_CORRUPT,
                           "%s is cut short: it ends at byte %llu without the blocks of zeros that "
                           "end an archive.",
                           walk->path, (unsigned long long)walk->bytes);
        if (is_zero(walk->base + at))
            return at == ret_member->start
                       ? 0
                       : damaged(walk, ret_member->start, "has no member behind it", err);
        int failed = check_header(walk, &type, &size, err);
        if (failed < 0)
            return failed;
        if (!(type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g'))
            return take_member(walk, type, size, &given, ret_member, err);
        failed = check_extent(walk, size, err);
        if (failed < 0)
            return failed;
        const uint8_t *text = walk->base + at + TAR_BLOCK;
        if (type == 'L') {
            given.name = (const char *)text;
            given.name_bytes = strnlen(given.name, size);
        } else if (type != 'K') {
            failed = parse_pax(walk, at, text, size, type == 'g', &given, err);
            if (failed < 0)
                return failed;
        }
        step_over(walk, size);
    }
}
