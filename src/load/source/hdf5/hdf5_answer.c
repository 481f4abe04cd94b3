/* hdf5_answer.c: what the child asks libhdf5, and how it writes it down; see hdf5_ask.h.
 *
 * Nothing is closed or freed: the process ends. The file is opened by the descriptor that is
 * mapped, so that both are of one file whatever happens to its name meanwhile.
 */
#include "hdf5_ask.h"
#include "hdf5_index.h"

#include "base/mem.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Numbers of HDF5's headers. */
enum { H5T_INTEGER, H5T_FLOAT, H5T_COMPOUND = 6, H5T_ENUM = 8, H5T_ARRAY = 10 };
enum { H5T_ORDER_LE, H5T_ORDER_BE };
enum { H5T_NORM_IMPLIED };
enum { H5Z_DEFLATE = 1, H5Z_SHUFFLE = 2, H5Z_FLETCHER32 = 3, H5Z_LZF = 32000 };
enum { H5D_VIRTUAL = 3 };
enum { DONT_FILTER_PARTIAL_CHUNKS = 2 };
enum { WALK_UPWARD };

static const char *const class_names[] = {"integers", "floats",     "times",     "strings",
                                          "bits",     "bytes",      "compounds", "references",
                                          "enums",    "vlen lists", "arrays",    "complex numbers"};

struct asker {
    const struct hdf5_library *h;
    const struct mapped_file *file;
    hdf5_id h5_file;
    uint64_t user_block_bytes;
    /* The dataset at hand. */
    const char *name;
    hdf5_id dataset, space, list, type;
    uint32_t space_dims; /* of the dataset, which chunks are counted in; those of items follow */
    int array_dims;      /* of an item that is an array; 0: it is not */
    hdf5_u64 array_shape[32];
    struct hdf5_dataset_wire is;
    uint64_t shift_bytes; /* to be added to addresses of chunks */
    int scaled;           /* offsets of H5Dchunk_iter count chunks, not items */
    struct leat_err err;
    /* The pipe. */
    int fd;
    size_t pending_bytes;
    uint8_t pending[16384];
};

/* ---- writing -----------------------------------------------------------------------------------
 */
static void flush(struct asker *a)
{
    for (size_t done = 0; done < a->pending_bytes;) {
        ssize_t put = write(a->fd, a->pending + done, a->pending_bytes - done);
        if (put < 0 && errno != EINTR)
            _exit(1); /* nobody listens */
        done += put > 0 ? (size_t)put : 0;
    }
    a->pending_bytes = 0;
}

static void put(struct asker *a, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    while (count) {
        size_t room = sizeof a->pending - a->pending_bytes, some = count < room ? count : room;
        memcpy(a->pending + a->pending_bytes, at, some);
        a->pending_bytes += some;
        at += some;
        count -= some;
        if (a->pending_bytes == sizeof a->pending)
            flush(a);
    }
}

static void put_tag(struct asker *a, uint32_t tag)
{
    put(a, &tag, sizeof tag);
}

/* ---- refusing ----------------------------------------------------------------------------------
 */
static int keep_first(unsigned depth, const struct hdf5_error *error, void *context)
{
    snprintf(context, 160, "%s", error->text ? error->text : "");
    return 1; /* the first is the one closest to the cause */
}

/* What libhdf5 has to say about its last failure, as "(libhdf5: …)". */
static int failed_call(struct asker *a, int code, const char *what)
{
    char reason[160] = "";
    a->h->H5Ewalk2(0, WALK_UPWARD, keep_first, reason);
    if (a->name)
        return err_set(&a->err, code, "%s: dataset \"%s\" %s (libhdf5: %s).", a->file->path,
                       a->name, what, *reason ? reason : "no word");
    return err_set(&a->err, code, "%s %s (libhdf5: %s).", a->file->path, what,
                   *reason ? reason : "no word");
}

static int refuse(struct asker *a, const char *what)
{
    return err_set(&a->err, -LEAT_E_USAGE, "%s: dataset \"%s\" %s.", a->file->path, a->name, what);
}

/* ---- types -------------------------------------------------------------------------------------
 */
static int set_type(struct asker *a, hdf5_id type, enum leat_dtype dtype, size_t unit)
{
    int order = a->h->H5Tget_order(type);
    if (unit > 1 && order != H5T_ORDER_LE && order != H5T_ORDER_BE)
        return refuse(a, "has items of a byte order that no machine has");
    a->is.dtype = dtype;
    a->is.item_bytes = (uint32_t)leat_dtype_bytes(dtype);
    a->is.swap_bytes =
        unit > 1 && (order == H5T_ORDER_BE) != (__BYTE_ORDER == __BIG_ENDIAN) ? (uint32_t)unit : 0;
    return 0;
}

static int describe_integer(struct asker *a, hdf5_id type)
{
    static const enum leat_dtype kinds[2][9] = {
        {[1] = LEAT_UINT8, [2] = LEAT_UINT16, [4] = LEAT_UINT32, [8] = LEAT_UINT64},
        {[1] = LEAT_INT8,  [2] = LEAT_INT16,  [4] = LEAT_INT32,  [8] = LEAT_INT64 }
    };
    size_t size = a->h->H5Tget_size(type);
    int is_signed = a->h->H5Tget_sign(type) == 1;
    if (size > 8 || kinds[is_signed][size] == LEAT_RAW || a->h->H5Tget_precision(type) != 8 * size)
        return refuse(a, "has integers of a size that torch does not have");
    return set_type(a, type, kinds[is_signed][size], size);
}

/* IEEE's and Google's, told apart by where their bits are. LEAT_RAW: none of them. */
static enum leat_dtype float_kind(struct asker *a, hdf5_id type)
{
    static const struct {
        enum leat_dtype dtype;
        size_t size, exponent_bits, mantissa_bits, bias;
    } kinds[] = {
        {LEAT_FLOAT16,  2, 5,  10, 15  },
        {LEAT_BFLOAT16, 2, 8,  7,  127 },
        {LEAT_FLOAT32,  4, 8,  23, 127 },
        {LEAT_FLOAT64,  8, 11, 52, 1023}
    };
    size_t size = a->h->H5Tget_size(type), sign, exponent, exponent_bits, mantissa, mantissa_bits;
    if (a->h->H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
        return LEAT_RAW;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].size == size && kinds[i].exponent_bits == exponent_bits &&
            kinds[i].mantissa_bits == mantissa_bits && !mantissa && exponent == mantissa_bits &&
            sign == 8 * size - 1 && a->h->H5Tget_ebias(type) == kinds[i].bias &&
            a->h->H5Tget_norm(type) == H5T_NORM_IMPLIED)
            return kinds[i].dtype;
    return LEAT_RAW;
}

static int describe_float(struct asker *a, hdf5_id type)
{
    enum leat_dtype dtype = float_kind(a, type);
    if (dtype == LEAT_RAW)
        return refuse(a, "has floats of a kind that torch does not have");
    return set_type(a, type, dtype, leat_dtype_bytes(dtype));
}

static int member_is(struct asker *a, hdf5_id type, unsigned number, const char *name)
{
    char *found = a->h->H5Tget_member_name(type, number);
    return found && strcmp(found, name) == 0;
}

/* h5py's bool: FALSE = 0 and TRUE = 1 of one byte. Other enums are their integers. */
static int describe_enum(struct asker *a, hdf5_id type)
{
    uint8_t first[8] = {1}, second[8] = {0};
    if (a->h->H5Tget_size(type) == 1 && a->h->H5Tget_nmembers(type) == 2 &&
        member_is(a, type, 0, "FALSE") && member_is(a, type, 1, "TRUE") &&
        a->h->H5Tget_member_value(type, 0, first) >= 0 &&
        a->h->H5Tget_member_value(type, 1, second) >= 0 && first[0] == 0 && second[0] == 1)
        return set_type(a, type, LEAT_BOOL, 1);
    hdf5_id base = a->h->H5Tget_super(type);
    return base < 0 ? failed_call(a, -LEAT_E_CORRUPT, "has a damaged type")
                    : describe_integer(a, base);
}

/* h5py's complex numbers: r and i, floats of one kind. */
static int describe_compound(struct asker *a, hdf5_id type)
{
    static const char other[] = "has compounds for items: store each of their members as a dataset "
                                "of its own";
    if (a->h->H5Tget_nmembers(type) != 2 || !member_is(a, type, 0, "r") ||
        !member_is(a, type, 1, "i"))
        return refuse(a, other);
    hdf5_id real = a->h->H5Tget_member_type(type, 0), imaginary = a->h->H5Tget_member_type(type, 1);
    if (real < 0 || imaginary < 0 || a->h->H5Tget_class(real) != H5T_FLOAT ||
        a->h->H5Tget_class(imaginary) != H5T_FLOAT)
        return refuse(a, other);
    enum leat_dtype part = float_kind(a, real);
    size_t unit = leat_dtype_bytes(part);
    if ((part != LEAT_FLOAT32 && part != LEAT_FLOAT64) || float_kind(a, imaginary) != part ||
        a->h->H5Tget_order(real) != a->h->H5Tget_order(imaginary) ||
        a->h->H5Tget_member_offset(type, 0) != 0 || a->h->H5Tget_member_offset(type, 1) != unit ||
        a->h->H5Tget_size(type) != 2 * unit)
        return refuse(a, other);
    return set_type(a, real, part == LEAT_FLOAT32 ? LEAT_COMPLEX64 : LEAT_COMPLEX128, unit);
}

static int describe_item(struct asker *a, hdf5_id type)
{
    char what[128];
    int class = a->h->H5Tget_class(type);
    switch (class) {
    case H5T_INTEGER: return describe_integer(a, type);
    case H5T_FLOAT: return describe_float(a, type);
    case H5T_ENUM: return describe_enum(a, type);
    case H5T_COMPOUND: return describe_compound(a, type);
    }
    const int known = sizeof class_names / sizeof *class_names;
    snprintf(what, sizeof what, "has %s for items, of which torch makes no tensor",
             class >= 0 && class < known ? class_names[class] : "something unknown");
    return refuse(a, what);
}

/* Items that are arrays themselves: their dimensions follow those of the dataset, as they do where
 * h5py reads them. */
static int describe_type(struct asker *a)
{
    a->array_dims = 0;
    if (a->h->H5Tget_class(a->type) != H5T_ARRAY)
        return describe_item(a, a->type);
    int dims = a->h->H5Tget_array_ndims(a->type);
    hdf5_id base = a->h->H5Tget_super(a->type);
    if (dims < 1 || dims > 32 || base < 0 ||
        a->h->H5Tget_array_dims2(a->type, a->array_shape) != dims)
        return failed_call(a, -LEAT_E_CORRUPT, "has a damaged type");
    a->array_dims = dims;
    return describe_item(a, base);
}

/* Of an array, whose items must be filled alike. Zeros where there is none: as libhdf5 has it for a
 * value that was never defined. */
static int describe_fill(struct asker *a)
{
    static uint8_t fill[HDF5_MOST_COMPACT_BYTES];
    size_t item = a->is.item_bytes;
    if (a->h->H5Tget_size(a->type) > sizeof fill)
        return refuse(a, "has items of more than 64 KiB");
    if (a->h->H5Pget_fill_value(a->list, a->type, fill) < 0)
        return 0;
    for (size_t at = item; a->array_dims && at + item <= a->h->H5Tget_size(a->type); at += item)
        if (memcmp(fill, fill + at, item) != 0)
            return refuse(a, "has arrays for items, which are not filled with one number");
    memcpy(a->is.fill, fill, item);
    return 0;
}

/* ---- shape and layout --------------------------------------------------------------------------
 */
static int describe_shape(struct asker *a)
{
    hdf5_u64 shape[32] = {0};
    int dims = a->h->H5Sget_simple_extent_ndims(a->space);
    if (!dims)
        return refuse(a, "holds a single item; a first dimension must count the samples");
    if (dims < 0 || dims > 32 || a->h->H5Sget_simple_extent_dims(a->space, shape, NULL) != dims)
        return failed_call(a, -LEAT_E_CORRUPT, "has no shape");
    if (dims + a->array_dims > LEAT_MAX_DIMS)
        return refuse(a, "has more dimensions than 16");
    a->space_dims = (uint32_t)dims;
    a->is.dims = (uint32_t)(dims + a->array_dims);
    for (int d = 0; d < dims; d++)
        a->is.shape[d] = (int64_t)shape[d];
    for (int d = 0; d < a->array_dims; d++)
        a->is.shape[dims + d] = (int64_t)a->array_shape[d];
    return 0;
}

static int describe_filter(struct asker *a, unsigned number)
{
    struct chunk_filter *filter = &a->is.pipeline.filter[number];
    unsigned flags, config, values[32] = {0};
    size_t values_count = sizeof values / sizeof *values;
    char name[64] = "", what[160];
    int id = a->h->H5Pget_filter2(a->list, number, &flags, &values_count, values, sizeof name, name,
                                  &config);
    if (id < 0)
        return failed_call(a, -LEAT_E_CORRUPT, "has a damaged filter");
    name[sizeof name - 1] = 0;
    switch (id) {
    case H5Z_DEFLATE: filter->kind = CHUNK_DEFLATE; return 0;
    case H5Z_LZF: filter->kind = CHUNK_LZF; return 0;
    case H5Z_FLETCHER32: filter->kind = CHUNK_FLETCHER32; return 0;
    case H5Z_SHUFFLE:
        filter->kind = CHUNK_SHUFFLE;
        filter->item_bytes = values_count ? values[0] : 0;
        return 0;
    }
    snprintf(what, sizeof what,
             "is packed by the filter %.60s (%d); gzip, lzf, shuffle and fletcher32 can be read",
             *name ? name : "without a name", id);
    return refuse(a, what);
}

static int describe_chunk(struct asker *a)
{
    hdf5_u64 chunk[32] = {0};
    unsigned options = 0;
    int filters = a->h->H5Pget_nfilters(a->list);
    if (a->h->H5Pget_chunk(a->list, 32, chunk) != (int)a->space_dims || filters < 0 ||
        filters > CHUNK_MOST_FILTERS)
        return failed_call(a, -LEAT_E_CORRUPT, "has a damaged layout");
    for (uint32_t d = 0; d < a->space_dims; d++) {
        if (!chunk[d])
            return failed_call(a, -LEAT_E_CORRUPT, "has chunks without a size");
        a->is.chunk[d] = (int64_t)chunk[d];
    }
    for (uint32_t d = a->space_dims; d < a->is.dims; d++) /* no array is cut */
        a->is.chunk[d] = a->is.shape[d];
    a->is.pipeline.count = (uint32_t)filters;
    for (int i = 0; i < filters; i++) {
        int failed = describe_filter(a, (unsigned)i);
        if (failed)
            return failed;
    }
    if (filters && a->h->H5Pget_chunk_opts(a->list, &options) >= 0 &&
        options & DONT_FILTER_PARTIAL_CHUNKS)
        return refuse(a,
                      "has chunks at its edges that are packed otherwise than the rest; h5repack "
                      "makes them alike");
    return 0;
}

/* ---- chunks ------------------------------------------------------------------------------------
 */
static void put_chunk(struct asker *a, const hdf5_u64 *offset, unsigned mask, hdf5_u64 address,
                      hdf5_u64 bytes)
{
    struct hdf5_chunk chunk = {.offset = address + a->shift_bytes,
                               .bytes = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes,
                               .mask = mask};
    for (uint32_t d = 0; d < a->space_dims; d++) {
        uint64_t size = (uint64_t)a->is.chunk[d];
        uint64_t grid = ((uint64_t)a->is.shape[d] + size - 1) / size;
        chunk.number = chunk.number * grid + (a->scaled ? offset[d] : offset[d] / size);
    }
    put(a, &chunk, sizeof chunk);
}

static int visit_chunk(const hdf5_u64 *offset, unsigned mask, hdf5_u64 address, hdf5_u64 bytes,
                       void *context)
{
    put_chunk(context, offset, mask, address, bytes);
    return 0;
}

/* The first chunk that does not lie at the origin, and how many came before it. */
struct first_chunk {
    uint32_t dims;
    uint64_t number;
    hdf5_u64 offset[LEAT_MAX_DIMS];
    int found;
};

static int find_first(const hdf5_u64 *offset, unsigned mask, hdf5_u64 address, hdf5_u64 bytes,
                      void *context)
{
    struct first_chunk *first = context;
    for (uint32_t d = 0; d < first->dims; d++)
        first->found |= offset[d] != 0;
    if (!first->found) {
        first->number++;
        return 0;
    }
    memcpy(first->offset, offset, first->dims * sizeof *offset);
    return 1;
}

/* H5Dchunk_iter of some versions gives offsets in chunks, of others in items; H5Dget_chunk_info
 * always gives items, so one chunk that both tell of decides. */
static int find_scale(struct asker *a)
{
    struct first_chunk first = {.dims = a->space_dims};
    hdf5_u64 offset[32] = {0}, address, bytes;
    unsigned mask;
    if (a->h->H5Dchunk_iter(a->dataset, 0, find_first, &first) < 0)
        return failed_call(a, -LEAT_E_CORRUPT, "has a damaged table of chunks");
    if (!first.found)
        return 0;
    if (a->h->H5Dget_chunk_info(a->dataset, a->space, first.number, offset, &mask, &address,
                                &bytes) < 0)
        return failed_call(a, -LEAT_E_CORRUPT, "has a damaged table of chunks");
    a->scaled = memcmp(offset, first.offset, a->space_dims * sizeof *offset) != 0;
    return 0;
}

static int same_bytes(struct asker *a, uint64_t offset, const void *bytes, size_t count)
{
    return offset <= a->file->bytes && count <= a->file->bytes - offset &&
           memcmp(a->file->base + offset, bytes, count) == 0;
}

/* Before libhdf5 1.14.4 the addresses of chunks did not count the block that users may put before
 * the file proper, as MATLAB does. So one chunk is read by libhdf5 and looked for at both places.
 */
static int find_shift(struct asker *a, uint64_t count)
{
    for (uint64_t i = 0; a->user_block_bytes && i < count && i < 16; i++) {
        hdf5_u64 offset[32] = {0}, address, bytes;
        unsigned mask;
        uint32_t read_mask;
        void *read = NULL;
        if (a->h->H5Dget_chunk_info(a->dataset, a->space, i, offset, &mask, &address, &bytes) < 0 ||
            bytes > a->file->bytes || !(read = mem_alloc(bytes)) || !a->h->H5Dread_chunk ||
            a->h->H5Dread_chunk(a->dataset, 0, offset, &read_mask, read) < 0)
            return failed_call(a, -LEAT_E_CORRUPT, "lies behind a user block and cannot be found");
        int here = same_bytes(a, address, read, bytes);
        int behind = same_bytes(a, address + a->user_block_bytes, read, bytes);
        mem_free(read);
        if (here != behind) {
            a->shift_bytes = behind ? a->user_block_bytes : 0;
            return 0;
        }
    }
    if (a->user_block_bytes && count)
        return refuse(a, "lies behind a user block and cannot be found there");
    return 0;
}

static int put_chunks(struct asker *a)
{
    hdf5_u64 count = 0, offset[32] = {0}, address, bytes;
    unsigned mask;
    if (a->h->H5Dget_num_chunks(a->dataset, a->space, &count) < 0)
        return failed_call(a, -LEAT_E_CORRUPT, "has a damaged table of chunks");
    int failed = count && a->h->H5Dchunk_iter ? find_scale(a) : 0;
    if (!failed)
        failed = find_shift(a, count);
    if (failed)
        return failed;
    a->is.follows = count;
    put_tag(a, HDF5_TAG_DATASET);
    put(a, &a->is, sizeof a->is);
    if (a->h->H5Dchunk_iter) {
        if (count && a->h->H5Dchunk_iter(a->dataset, 0, visit_chunk, a) < 0)
            return failed_call(a, -LEAT_E_CORRUPT, "has a damaged table of chunks");
        return 0;
    }
    for (hdf5_u64 i = 0; i < count; i++) {
        if (a->h->H5Dget_chunk_info(a->dataset, a->space, i, offset, &mask, &address, &bytes) < 0)
            return failed_call(a, -LEAT_E_CORRUPT, "has a damaged table of chunks");
        put_chunk(a, offset, mask, address, bytes);
    }
    return 0;
}

/* ---- datasets ----------------------------------------------------------------------------------
 */
static int put_compact(struct asker *a)
{
    static uint8_t data[HDF5_MOST_COMPACT_BYTES];
    uint64_t bytes = a->is.item_bytes;
    for (uint32_t d = 0; d < a->is.dims; d++)
        if (__builtin_mul_overflow(bytes, (uint64_t)a->is.shape[d], &bytes) || bytes > sizeof data)
            return refuse(a, "is larger than a compact one can be");
    if (bytes && a->h->H5Dread(a->dataset, a->type, 0, 0, 0, data) < 0)
        return failed_call(a, -LEAT_E_CORRUPT, "cannot be read");
    a->is.follows = bytes;
    put_tag(a, HDF5_TAG_DATASET);
    put(a, &a->is, sizeof a->is);
    put(a, data, bytes);
    return 0;
}

static int put_data(struct asker *a)
{
    int layout = a->h->H5Pget_layout(a->list), failed;
    a->is.layout = (uint32_t)layout;
    a->is.offset = HDF5_NOWHERE;
    switch (layout) {
    case HDF5_COMPACT: return put_compact(a);
    case HDF5_CHUNKED: failed = describe_chunk(a); return failed ? failed : put_chunks(a);
    case H5D_VIRTUAL:
        return refuse(a, "is virtual: its data lie in other files, which are to be read instead");
    case HDF5_CONTIGUOUS:
        if (a->h->H5Pget_external_count(a->list) > 0)
            return refuse(a, "has its data in other files; h5repack brings them into one");
        a->is.offset = a->h->H5Dget_offset(a->dataset);
        put_tag(a, HDF5_TAG_DATASET);
        put(a, &a->is, sizeof a->is);
        return 0;
    }
    return failed_call(a, -LEAT_E_CORRUPT, "has an unknown layout");
}

/* A link may lead into another file. */
static int check_home(struct asker *a)
{
    char of_file[512] = "", of_dataset[512] = "";
    a->h->H5Fget_name(a->h5_file, of_file, sizeof of_file);
    a->h->H5Fget_name(a->dataset, of_dataset, sizeof of_dataset);
    return strcmp(of_file, of_dataset) == 0 ? 0
                                            : refuse(a, "is a link to another file: name that one");
}

static int put_dataset(struct asker *a, const char *name)
{
    a->name = name;
    a->is = (struct hdf5_dataset_wire){0};
    a->shift_bytes = 0;
    a->scaled = 0;
    if ((a->dataset = a->h->H5Dopen2(a->h5_file, name, 0)) < 0)
        return failed_call(a, -LEAT_E_USAGE, "cannot be opened");
    a->type = a->h->H5Dget_type(a->dataset);
    a->space = a->h->H5Dget_space(a->dataset);
    a->list = a->h->H5Dget_create_plist(a->dataset);
    if (a->type < 0 || a->space < 0 || a->list < 0)
        return failed_call(a, -LEAT_E_CORRUPT, "is damaged");
    int failed = check_home(a);
    if (!failed)
        failed = describe_type(a);
    if (!failed)
        failed = describe_shape(a);
    if (!failed)
        failed = describe_fill(a);
    return failed ? failed : put_data(a);
}

static int open_file(struct asker *a)
{
    char path[64];
    hdf5_u64 user_block = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", a->file->fd);
    a->h->H5Eset_auto2(0, NULL, NULL); /* it would print */
    if ((a->h5_file = a->h->H5Fopen(path, 0, 0)) < 0)
        return failed_call(a, -LEAT_E_CORRUPT, "cannot be opened");
    hdf5_id list = a->h->H5Fget_create_plist(a->h5_file);
    if (list < 0 || a->h->H5Pget_userblock(list, &user_block) < 0)
        return failed_call(a, -LEAT_E_CORRUPT, "is damaged");
    a->user_block_bytes = user_block;
    return 0;
}

void hdf5_answer(const struct hdf5_question *question, int fd)
{
    static struct asker a;
    a.h = question->library;
    a.file = question->file;
    a.fd = fd;
    int failed = open_file(&a);
    for (uint32_t i = 0; i < question->count && !failed; i++)
        failed = put_dataset(&a, question->names[i]);
    if (failed) {
        int32_t code = failed;
        put_tag(&a, HDF5_TAG_ERROR);
        put(&a, &code, sizeof code);
        put(&a, a.err.text, strlen(a.err.text) + 1);
    } else {
        put_tag(&a, HDF5_TAG_END);
    }
    flush(&a);
}
