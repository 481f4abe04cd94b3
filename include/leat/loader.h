/* loader.h: batches of training samples, read by C threads straight into the batch.
 *
 *     struct leat_err err;
 *     struct leat_array arrays[] = {
 *         {.name = "x", .dtype = LEAT_FLOAT32, .dims = 2, .shape = {n, 100}, .data = x},
 *         {.name = "y", .dtype = LEAT_INT64, .dims = 1, .shape = {n}, .data = y}};
 *     struct leat_source *source;
 *     struct leat_loader *loader;
 *     leat_source_memory(arrays, 2, NULL, NULL, &source, &err);
 *     struct leat_loader_options options = {.batch_size = 256, .order = LEAT_ORDER_FULL};
 *     leat_loader_new(source, &options, &loader, &err);
 *     for (uint64_t epoch = 0; epoch < 10; epoch++) {
 *         struct leat_batch *batch;
 *         leat_loader_start(loader, epoch, &err);
 *         while (leat_loader_next(loader, -1, &batch, &err) > 0) {
 *             const float *rows = batch->data[0];   // batch->samples rows of 100 floats
 *             leat_batch_unref(batch);
 *         }
 *     }
 *     leat_loader_close(loader);
 *     leat_source_unref(source);
 *
 * Promises
 *   - One epoch is exactly the multiset of the data (with drop_last, without the tail). The ranks
 *     of one world are disjoint and their union is that multiset.
 *   - The same seed and epoch give the same batches in the same order for any number of threads.
 *   - A batch does not change while it has a reference, also after the loader is closed: its slot
 *     is refilled only after the last leat_batch_unref().
 *   - All slots together, with samples of different length, take at most `memory_bytes`. A consumer
 *     that keeps batches is given new slots up to that limit; then leat_loader_next() fails with
 *     -LEAT_E_FULL (or waits, LEAT_FULL_WAIT) until a batch is released. Surplus slots are freed
 *     when they are released. A batch that does not fit alone fails with -ENOMEM; later ones may
 *     fit.
 *   - Threads: leat_batch_ref/unref and leat_loader_stop may be called by any thread at any time.
 *     All other calls on one loader are made by one thread at a time.
 *   - After fork() the child may use the loader: it starts its own threads at the position of the
 *     parent's consumer. It may also just exit.
 *   - Nothing here prints, exits or raises a signal.
 *
 * Caveats
 *   - The size of a mapped file is checked before each read of a few samples; a file cut short
 *     between the check and the read gives SIGBUS, as with any mapping.
 *   - Threads read the memory given to leat_source_memory() as long as the source lives: writes to
 *     it meanwhile give batches with old and new rows.
 */
#ifndef LEAT_LOADER_H
#define LEAT_LOADER_H

#include "leat/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEAT_MAX_DIMS   16
#define LEAT_MAX_FIELDS 64
#define LEAT_NAME_BYTES 64

/* Types of an item: name, text (NumPy's if it has one), bytes, and the type code and bits of
 * DLPack. RAW items have any size: structured rows, strings, dates; `descr` describes them. */
#define LEAT_DTYPES(X)                                                                             \
    X(RAW, "raw", 0, 3, 0)                                                                         \
    X(BOOL, "bool", 1, 6, 8)                                                                       \
    X(INT8, "int8", 1, 0, 8)                                                                       \
    X(INT16, "int16", 2, 0, 16)                                                                    \
    X(INT32, "int32", 4, 0, 32)                                                                    \
    X(INT64, "int64", 8, 0, 64)                                                                    \
    X(UINT8, "uint8", 1, 1, 8)                                                                     \
    X(UINT16, "uint16", 2, 1, 16)                                                                  \
    X(UINT32, "uint32", 4, 1, 32)                                                                  \
    X(UINT64, "uint64", 8, 1, 64)                                                                  \
    X(FLOAT16, "float16", 2, 2, 16)                                                                \
    X(BFLOAT16, "bfloat16", 2, 4, 16)                                                              \
    X(FLOAT32, "float32", 4, 2, 32)                                                                \
    X(FLOAT64, "float64", 8, 2, 64)                                                                \
    X(COMPLEX64, "complex64", 8, 5, 64)                                                            \
    X(COMPLEX128, "complex128", 16, 5, 128)

enum leat_dtype {
#define X(name, text, bytes, code, bits) LEAT_##name,
    LEAT_DTYPES(X)
#undef X
        LEAT_DTYPES_COUNT
};

/* Bytes of an item (0: RAW), and the name of a type. */
size_t leat_dtype_bytes(enum leat_dtype dtype);
const char *leat_dtype_name(enum leat_dtype dtype);

/* ---- Sources: where samples are read from ------------------------------------------------------
 *
 * A source is immutable and may be shared: each loader holds a reference of its own.
 */
struct leat_source;

/* What each sample has: one row of `row_bytes`, of `dims` dimensions (0: a single item). A variable
 * field has any number of such rows per sample: tokens of a text, bytes of a file. */
struct leat_field {
    char name[LEAT_NAME_BYTES];
    enum leat_dtype dtype;
    uint32_t item_bytes;
    uint32_t dims;
    int variable;
    int64_t shape[LEAT_MAX_DIMS]; /* of one sample, or of one of its rows; without the batch */
    uint64_t row_bytes;
    const char *descr; /* RAW: NumPy's description of the item, else ""; lives with the source */
};

/* An array in memory; its first dimension counts the samples. */
struct leat_array {
    const char *name; /* copied; may be NULL */
    enum leat_dtype dtype;
    uint32_t item_bytes; /* RAW only */
    uint32_t dims;       /* 1 to LEAT_MAX_DIMS */
    int64_t shape[LEAT_MAX_DIMS];
    const int64_t *strides_bytes; /* `dims` of them, of any sign; NULL: C order; copied */
    const void *data;             /* of the item at index 0 in all dimensions */
};

/* 1 to LEAT_MAX_FIELDS arrays of one length. They are not copied: they must live until `release`
 * is called (once, with `owner`, by the thread that drops the last reference; may be NULL). On
 * failure `release` is not called. */
int leat_source_memory(const struct leat_array *arrays, uint32_t count,
                       void (*release)(void *owner), void *owner, struct leat_source **ret_source,
                       struct leat_err *err);

/* .npy files, mapped; one field each, all of one length. `names` may be NULL: the file names
 * without folder and ".npy". Any type but Python objects; C and Fortran order; either byte order.
 */
int leat_source_npy(const char *const *paths, const char *const *names, uint32_t count,
                    struct leat_source **ret_source, struct leat_err *err);

/* A part of a file that holds a .npy, such as a stored (uncompressed) member of a .npz. bytes < 0:
 * to the end of the file. */
struct leat_npy_part {
    const char *path, *name;
    int64_t offset, bytes;
};
int leat_source_npy_parts(const struct leat_npy_part *parts, uint32_t count,
                          struct leat_source **ret_source, struct leat_err *err);

/* Tokens in a flat file: sample i is the `length` items from i * stride on, converted to `out`.
 * Tokens at the end that do not fill a sample are left out. */
struct leat_tokens {
    const char *path;       /* the .bin */
    const char *index_path; /* Megatron's .idx: gives the type and the extent; NULL: none */
    enum leat_dtype dtype;  /* of the file: an integer; ignored with index_path */
    enum leat_dtype out;    /* LEAT_INT64, LEAT_INT32 where it fits, or RAW: as in the file */
    int64_t offset_bytes;   /* where the tokens begin; 0 with index_path */
    int64_t length, stride; /* stride 0: length */
    const char *name;       /* of the field; NULL: "tokens" */
};
int leat_source_tokens(const struct leat_tokens *tokens, struct leat_source **ret_source,
                       struct leat_err *err);

/* Samples of different length in memory: the rows of all of them one after the other, and where
 * each sample begins. They are not copied: the spans of a list point to them, other layouts are
 * made of them. A field without offsets is a fixed one. `release` and the lifetime of the arrays,
 * offsets included, are as with leat_source_memory(). */
struct leat_ragged {
    struct leat_array
        array; /* with offsets its first dimension counts the rows of all samples; no gaps */
    const int64_t *offsets; /* samples + 1 of them: sample i has the rows offsets[i] to
                               offsets[i + 1] - 1; NULL: a fixed field */
};
int leat_source_ragged(const struct leat_ragged *fields, uint32_t count, int64_t samples,
                       void (*release)(void *owner), void *owner, struct leat_source **ret_source,
                       struct leat_err *err);

/* The documents of a .bin, each a sample of its own length, by Megatron's .idx. Takes 8 bytes of
 * memory per document. */
struct leat_documents {
    const char *path, *index_path; /* the .bin and the .idx */
    enum leat_dtype
        out;          /* LEAT_INT64, LEAT_INT32 where it fits, or RAW: as in the file, not copied */
    const char *name; /* of the field; NULL: "tokens" */
};
int leat_source_documents(const struct leat_documents *documents, struct leat_source **ret_source,
                          struct leat_err *err);

/* Documents joined and cut into rows of one length: a source of fixed fields, which works with
 * every order, rank and state. `source` has one field: integers, variable, with lengths known
 * without reading (leat_source_ragged, leat_source_documents). Its tokens become int64. Takes 8
 * bytes of memory per document, and a reference to `source`. */
struct leat_packed {
    int64_t length; /* items of a row */
    int shuffled;   /* join the documents in an order drawn once, by `seed`; else as they are */
    uint64_t seed;
    int separated; /* an item `separator` between two documents; it belongs to the first */
    int64_t separator;
    int pad_last; /* fill the last row with `pad`; else leave it out */
    int64_t pad;
    int segments;  /* a field "segments": number of the document in the row, from 0; -1: padding */
    int positions; /* a field "positions": place within the document's part of the row, from 0 */
};
int leat_source_packed(struct leat_source *source, const struct leat_packed *packed,
                       struct leat_source **ret_source, struct leat_err *err);

/* Datasets of an HDF5 file, one field each, all of one length. The file is mapped and read without
 * libhdf5. The caller finds out where each dataset lies, its type, shape and filters, for example
 * with h5py (as python/leat/data/hdf5.py does) or libhdf5 (H5Dchunk_iter). The description is
 * checked against itself and against the size of the file, then copied.
 *
 * Packed chunks are unpacked whole and cached: SEQUENTIAL and WINDOW unpack each once per epoch,
 * FULL again and again. The default window holds whole chunks, 4096 samples or as many as fit. */
enum leat_hdf5_layout {
    LEAT_HDF5_COMPACT,    /* inside the metadata: `data` */
    LEAT_HDF5_CONTIGUOUS, /* in one piece, at `offset` */
    LEAT_HDF5_CHUNKED     /* `chunk`, `chunks` and `filters` */
};

enum leat_hdf5_filter_kind {
    LEAT_HDF5_DEFLATE,
    LEAT_HDF5_SHUFFLE,
    LEAT_HDF5_LZF,
    LEAT_HDF5_FLETCHER32,
    LEAT_HDF5_FILTERS_COUNT
};

struct leat_hdf5_filter {
    uint32_t kind;       /* enum leat_hdf5_filter_kind */
    uint32_t item_bytes; /* SHUFFLE */
};

/* A chunk that was written. Its number counts the chunks of the dataset in C order, written or not.
 */
struct leat_hdf5_chunk {
    uint64_t number;
    uint64_t offset; /* in the file */
    uint32_t bytes;  /* as stored */
    uint32_t mask;   /* bit i: filter i was not applied */
};

#define LEAT_HDF5_MAX_FILTERS   32
#define LEAT_HDF5_NEVER_WRITTEN UINT64_MAX

struct leat_hdf5_dataset {
    const char *name;      /* of the dataset, for messages */
    const char *field;     /* of the field; NULL: that of the dataset */
    enum leat_dtype dtype; /* not RAW */
    int swapped;           /* the items have the other byte order than this machine */
    uint32_t dims;         /* at least 1: the first one counts the samples */
    int64_t shape[LEAT_MAX_DIMS];
    enum leat_hdf5_layout layout;
    uint64_t offset;              /* CONTIGUOUS; or LEAT_HDF5_NEVER_WRITTEN */
    const void *data;             /* COMPACT: all samples */
    int64_t chunk[LEAT_MAX_DIMS]; /* CHUNKED: shape of a chunk */
    const struct leat_hdf5_chunk *chunks;
    uint64_t chunks_count;
    const struct leat_hdf5_filter *filters; /* in the order in which they were applied */
    uint32_t filters_count;
    const void *fill; /* an item, as stored, of what was never written; NULL: zeros */
};

struct leat_hdf5 {
    const char *path;
    const struct leat_hdf5_dataset *datasets;
    uint32_t count;
    uint64_t cache_bytes; /* limit on unpacked chunks, but for one chunk per thread in use; never
                             less than two chunks of every dataset. 0: an eighth of the machine's
                             memory, 1 GiB at most */
};
int leat_source_hdf5(const struct leat_hdf5 *hdf5, struct leat_source **ret_source,
                     struct leat_err *err);

/* ---- Codecs: how the bytes of a value are decoded ---------------------------------------------
 *
 * For sources whose values are files of their own: members of a tar, values of an LMDB, files.
 */
enum leat_codec_kind {
    LEAT_CODEC_BYTES,   /* as they are: a variable field of uint8 */
    LEAT_CODEC_ARRAY,   /* `dtype` and `shape` without a header: what numpy's tobytes() writes */
    LEAT_CODEC_NPY,     /* a .npy: all of the type and shape of the first one */
    LEAT_CODEC_DECIMAL, /* a number in ASCII digits, as labels are written: int64 */
    LEAT_CODECS_COUNT
};

struct leat_codec {
    enum leat_codec_kind kind;
    enum leat_dtype dtype; /* ARRAY */
    uint32_t dims;         /* ARRAY */
    int64_t shape[LEAT_MAX_DIMS];
    int variable; /* ARRAY, NPY: the first dimension differs, `shape` is of one row */
};

/* The values of an LMDB file, one per sample, in the order of LMDB's keys: a field "value", and
 * "key" before it when asked for. liblmdb opens the file read-only and without locks; nothing is
 * written. A writer that ends a transaction while the file is in use makes reading fail: its pages
 * may be used again. Several values for a key (DUPSORT) are refused. Opening reads all keys and
 * keeps 24 bytes per sample. A damaged file gets liblmdb's checks, which are few: it can crash the
 * process, or give wrong bytes, since LMDB has no checksums. A file cut short is refused. */
struct leat_lmdb_key {
    const void *bytes;
    size_t count;
};

struct leat_lmdb {
    const char *path; /* the folder with data.mdb, or the file */
    const char *db;   /* a named database; NULL: the unnamed one */
    struct leat_codec value;
    const struct leat_codec *key;     /* NULL: no field of keys */
    const struct leat_lmdb_key *skip; /* keys that are not samples; missing ones are ignored */
    size_t skip_count;
};
int leat_source_lmdb(const struct leat_lmdb *lmdb, struct leat_source **ret_source,
                     struct leat_err *err);

/* One file per sample: a field "value", and "label" after it when there are labels. Paths and
 * labels are copied. Files are opened when they are read; the first one also here, if the codec
 * learns from it. */
struct leat_files {
    const char *const *paths;
    int64_t count;
    const int64_t *labels; /* `count` of them, or NULL */
    struct leat_codec value;
};
int leat_source_files(const struct leat_files *files, struct leat_source **ret_source,
                      struct leat_err *err);

/* Shards in the layout of WebDataset: tar archives (ustar, pax, GNU) in which the files of a sample
 * lie next to each other and share a name up to the first dot. A field is an extension, in lower
 * case. Each shard is a mapped file whose headers are read once, so there are a length and indices;
 * the index takes 4 bytes per sample and 8 per field of it.
 *
 * Plain local shards are read in place. Shards compressed with gz or zstd, and http://, https://
 * and s3:// addresses, are copied first: into the folder `cache`, where the next run finds them, or
 * into temporary files. The checksums of headers, of gz and, if present, of zstd are verified; tar
 * has none over the data. */
struct leat_tar_field {
    const char *extension; /* "jpg", "seg.png" */
    struct leat_codec codec;
};

struct leat_tar {
    const char *const *shards; /* paths and addresses */
    uint32_t shard_count;
    const struct leat_tar_field *fields;
    uint32_t field_count; /* 0: the extensions of the first sample: .npy; .cls .cls2 .id .index
                             .inx as decimals; anything else as bytes */
    int keys;             /* a field "__key__" before the others: variable, of uint8 */
    int skip_missing;     /* leave out samples that lack a field; else they are bad samples */
    const char *cache;    /* folder of the copies; NULL: temporary files in TMPDIR or /tmp */
    uint64_t cache_bytes; /* limit on the copies of this source; 0: the free disk */
    const char *endpoint; /* of s3; NULL: LEAT_S3_ENDPOINT in the environment, else Amazon's */
    int timeout_s;        /* limit on the time without a byte from the server; 0: 60 */
    int threads;          /* that open shards; 0: one per core, at least 8 for addresses */
    int (*cancelled)(void *owner); /* called about 20 times a second by the caller's thread; not 0:
                                      fail with -ECANCELED. May be NULL */
    void *owner;                   /* for cancelled() */
};
int leat_source_tar(const struct leat_tar *tar, struct leat_source **ret_source,
                    struct leat_err *err);

int64_t leat_source_count(const struct leat_source *source);
uint32_t leat_source_fields(const struct leat_source *source);
const struct leat_field *leat_source_field(const struct leat_source *source, uint32_t field);
/* Rows of samples `first` to `first + count - 1` in a variable field, found without reading them;
 * -LEAT_E_MISSING when the source cannot. */
int leat_source_lengths(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                        int64_t *ret_lengths, struct leat_err *err);
/* A description in one line: "npy x.npy: 7000000 samples of float32[100]". */
const char *leat_source_text(const struct leat_source *source);
/* How fields are decoded: "npy from .npy, cls from digits"; "none" when the rows are copied as they
 * are. */
const char *leat_source_decode(const struct leat_source *source);

struct leat_source *leat_source_ref(struct leat_source *source);
void leat_source_unref(struct leat_source *source); /* takes NULL */

/* ---- Loaders ----------------------------------------------------------------------------------
 */
struct leat_loader;

enum leat_order {
    LEAT_ORDER_SEQUENTIAL, /* 0, 1, 2 … */
    LEAT_ORDER_FULL,       /* a random permutation */
    LEAT_ORDER_QUASI,      /* blocks of `block` neighbours shuffled, mixed among `mix` blocks */
    LEAT_ORDER_WINDOW,     /* shuffled within windows of `window` neighbours */
    LEAT_ORDER_GIVEN       /* each batch's indices come from leat_loader_submit() */
};

enum leat_on_error {
    LEAT_ERROR_RAISE,  /* next() fails for the batch with the bad sample; the next batch is not
                          affected */
    LEAT_ERROR_SKIP,   /* it is replaced by the last sample of this rank's epoch, which becomes one
                          shorter: no sample is repeated, the batch size is kept */
    LEAT_ERROR_REPLACE /* it is replaced by another sample, drawn by (seed, epoch, sample) */
};

/* How a batch holds a variable field. */
enum leat_layout_kind {
    LEAT_LAYOUT_LIST,  /* data[f] is an array of struct leat_span, one for each sample */
    LEAT_LAYOUT_PAD,   /* samples x items[f] rows: each sample's, then padding */
    LEAT_LAYOUT_CONCAT /* items[f] rows: those of all samples, one after the other */
};

struct leat_span {
    const void *data;
    int64_t items; /* rows of row_bytes */
};

struct leat_layout {
    enum leat_layout_kind kind;
    int64_t multiple; /* PAD: items[f] is rounded up to a multiple of it; 0: 1 */
    int64_t most;     /* longer samples are cut off; 0: never */
    double value;     /* PAD: the padding, converted to the field's type */
};

enum leat_when_full {
    LEAT_FULL_FAIL, /* next() fails with -LEAT_E_FULL */
    LEAT_FULL_WAIT  /* next() waits for a batch to be released, up to its time limit */
};

#define LEAT_THREADS_NONE -1 /* next() does all the work */

/* Zero is the default everywhere but in batch_size. */
struct leat_loader_options {
    int64_t batch_size; /* samples of one batch of one rank; GIVEN: the largest number */
    int drop_last;      /* leave out samples that do not fill a batch on every rank */
    enum leat_order order;
    uint64_t seed;
    int64_t block, mix;   /* QUASI: samples of a block, blocks mixed; 0: about 1 MiB, and 16 */
    int64_t window;       /* WINDOW: samples of a window; 0: the source's, else 4096 */
    int rank, world_size; /* world_size 0: 1 */
    int threads;  /* 0: at first one less than the cores that this process may use (affinity and
                     cgroup), at least 1; while next() waits, the calling thread helps with the batch
                     it waits for */
    int autotune; /* threads and `ahead` adapt to the consumer, within all cores but one and the
                     memory: 1 always, -1 never, 0 if `threads` is 0 */
    int no_help;  /* next() only waits */
    int ahead;    /* batches to prefetch; 0: 1 to 16 */
    uint64_t memory_bytes; /* limit on all slots; 0: a quarter of the machine's memory, or of a
                              cgroup's. At least two slots must fit */
    enum leat_on_error on_error;
    enum leat_when_full when_full;
    struct leat_layout layout;         /* of the variable fields */
    const struct leat_layout *layouts; /* one per field, instead of `layout`; copied; may be NULL */
    int device;                        /* CUDA device + 1: deliver batches there; 0: in memory */
    uint64_t device_bytes;             /* limit on the slots there; 0: a quarter of what is free */
    int resident; /* copy the source there, once, and gather batches there, if it is arrays in
                     memory and leaves memory for some batches. Later writes to the arrays are not
                     seen; do not read leat_batch.data */
    int (*current_stream)(
        int32_t device,
        void **ret_stream); /* the CUDA stream of the calling thread; not 0: unknown. May be NULL.
                               With it, batches may be dropped during the capture of a graph */
    int recorder_loader;    /* id + 1 of leat_recorder_loader(): report to `leat run` */
};

/* Takes a reference to the source. Starts no thread yet. */
int leat_loader_new(struct leat_source *source, const struct leat_loader_options *options,
                    struct leat_loader **ret_loader, struct leat_err *err);

/* Ends the threads and frees all slots but those of batches still held. Takes NULL. */
void leat_loader_close(struct leat_loader *loader);

/* Begins an epoch at its first batch; batches made for another one are discarded. When epochs
 * follow each other in the same order (1 after 0, say), the first batches of the next one are made
 * as soon as the last batch of this one was delivered; not for arrays of the caller, who may write
 * to them between two epochs. */
int leat_loader_start(struct leat_loader *loader, uint64_t epoch, struct leat_err *err);

/* GIVEN only: the indices of the next batch; copied. 1: taken; 0: `ahead` batches already wait,
 * call next() first. An index outside the source fails with -ERANGE, and nothing is taken.
 * `samples`: 1 to batch_size. */
int leat_loader_submit(struct leat_loader *loader, const int64_t *indices, int64_t samples,
                       struct leat_err *err);

/* A batch in one of the loader's slots. Fields are read-only; the rows may be written while the
 * batch is held, but not those that the spans of a LIST point to. */
struct leat_batch {
    uint64_t epoch;
    int64_t number;         /* of this rank, from the start of the epoch or the resume */
    int64_t samples;        /* batch_size; may be less in the last one */
    uint32_t fields;        /* as the source's */
    void *const *data;      /* of each field: `samples` rows of row_bytes, without gaps; 64-byte
                               aligned */
    const int64_t *indices; /* the sample of each row */
    const int64_t *const *lengths; /* of each variable field: the rows of each sample; else NULL */
    const int64_t *items; /* of each variable field: rows of the longest (PAD) or of all (CONCAT) */
    void *const
        *device_data; /* as data, on the device, after leat_batch_wait(); NULL without one */
    int device;       /* its number */
};

/* The next batch, with one reference for the caller. 1: *ret_batch is set. 0: the epoch is over
 * (GIVEN: nothing is submitted). -ETIMEDOUT after timeout_ms (< 0: never); -ECANCELED after
 * leat_loader_stop(); -LEAT_E_FULL; the code of a bad sample (on_error RAISE), `err` naming it. */
int leat_loader_next(struct leat_loader *loader, int timeout_ms, struct leat_batch **ret_batch,
                     struct leat_err *err);

/* With a device: the CUDA stream waits for the batch; the caller does not, unless the stream
 * captures a graph. Work enqueued on any stream before the last unref() may use the batch: its
 * memory is written again after that work. */
int leat_batch_wait(struct leat_batch *batch, void *stream, struct leat_err *err);

struct leat_batch *leat_batch_ref(struct leat_batch *batch);
void leat_batch_unref(struct leat_batch *batch); /* takes NULL */

/* Reads samples in the calling thread, without a loader; `count` is at least 1, and an index may
 * come twice. A NULL layout gives lists. The batch has one reference, for the caller, and holds the
 * source. Any thread may call this. A bad sample fails the call, `err` naming it; an index outside
 * the source fails with -ERANGE. */
int leat_source_read(struct leat_source *source, const int64_t *indices, size_t count,
                     const struct leat_layout *layout, struct leat_batch **ret_batch,
                     struct leat_err *err);

/* Makes the current next() and all later ones fail with -ECANCELED, until leat_loader_start(). */
void leat_loader_stop(struct leat_loader *loader);

/* Batches of the rank's epoch (without bad samples); GIVEN: -1. */
int64_t leat_loader_batches(const struct leat_loader *loader);

/* Changes the number of threads of a running loader; 1 to 256. */
int leat_loader_set_threads(struct leat_loader *loader, int threads, struct leat_err *err);

/* ---- State: the position in an epoch -----------------------------------------------------------
 *
 * Small, of fixed size, without pointers: may be stored as bytes for machines of one byte order.
 * After the same number of batches every rank has the same state, so one rank may save it for all.
 * Two exceptions: with SKIP each rank saves its own, since it holds what this rank took from the
 * end in place of bad samples; and when fewer samples than ranks are left for the last step, a rank
 * without one is at the end only after next() has returned 0.
 */
#define LEAT_STATE_VERSION 2

struct leat_loader_state {
    uint32_t version, order;
    uint64_t seed, epoch;
    int64_t samples;            /* of the source */
    int64_t block, mix, window; /* as used */
    int64_t position;           /* samples of the sequence that all ranks have delivered */
    int64_t spare;              /* samples that this rank took from the end of its share (SKIP) */
    int32_t rank, world_size;   /* of the loader that saved; `spare` is theirs */
    int64_t batch_size;         /* of the loader that saved */
    int64_t end; /* of the sequence: samples after it were delivered in place of bad ones */
    int32_t drop_last, skips; /* of the loader that saved; skips: SKIP was used in this epoch */
    int64_t reserved[1];
};

/* After the last batch that next() gave. Not for GIVEN (-LEAT_E_USAGE). */
int leat_loader_state(const struct leat_loader *loader, struct leat_loader_state *ret_state,
                      struct leat_err *err);

/* Continues from the state, in its order, seed and epoch, with this loader's batch size, threads,
 * rank and world size: the remaining samples are delivered exactly once. Instead of
 * leat_loader_start(). With SKIP an epoch of several ranks must be resumed by the same ranks with
 * the same batch size, each with its own state; else it is refused (-LEAT_E_USAGE), since samples
 * might come twice. So is an epoch of a single rank with drop_last that has skipped samples. */
int leat_loader_resume(struct leat_loader *loader, const struct leat_loader_state *state,
                       struct leat_err *err);

/* ---- Statistics -------------------------------------------------------------------------------
 */
struct leat_loader_stats {
    uint64_t elapsed_ns;              /* since the first start */
    uint64_t batches, samples, bytes; /* delivered */
    uint64_t waits, wait_ns;          /* next() calls that found no batch ready; their time */
    uint64_t help_ns;                 /* of wait_ns: spent making the batch */
    uint64_t order_ns, read_ns;       /* busy, summed over all threads: indices; source to slot */
    uint64_t layout_ns;               /* variable fields padded or joined */
    uint64_t idle_ns;                 /* threads without work */
    uint64_t
        ready_sum;   /* batches found ready at next(), summed: mean queue = ready_sum / batches */
    uint64_t errors; /* bad samples */
    uint64_t full;   /* next() calls that found every slot held by the consumer */
    int32_t threads, ahead;    /* now */
    uint64_t pace_changes;     /* changes of the two */
    const char *pace;          /* reason for the present numbers; a constant string */
    int32_t slots, slots_held; /* now; held by the consumer */
    uint64_t slot_bytes, memory_bytes, memory_most_bytes; /* the largest slot so far; all now; the
                                                             budget */
    int32_t resident; /* 1: the source is on the device, batches are gathered there */
};
void leat_loader_stats(const struct leat_loader *loader, struct leat_loader_stats *ret_stats);

/* 1 when the consumer holds at least three quarters of the slots that `memory_bytes` allows: copy
 * the batch and release it, or next() will soon find no slot. Cheap enough for every batch. */
int leat_loader_nearly_full(const struct leat_loader *loader);

struct leat_loader_error {
    uint64_t epoch;
    int64_t index; /* of the sample */
    int32_t code;
    char text[236]; /* one sentence: where and why */
};
/* Bad samples from number `first` on, oldest first; returns how many were written. The first
 * LEAT_ERRORS_KEPT of a loader are kept, all are counted. */
#define LEAT_ERRORS_KEPT 16384
size_t leat_loader_errors(const struct leat_loader *loader, size_t first,
                          struct leat_loader_error *errors, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
