/* hdf5_library.h: libhdf5, found when it is needed.
 *
 * There is no header of HDF5 here: the few functions that are asked for where data lie are declared
 * below, as they have been since HDF5 1.10.5 (hid_t has 8 bytes since 1.10.0, and the table of
 * chunks can be asked for since 1.10.5). H5Dchunk_iter came with 1.14; without it the table takes
 * time that grows with its square, so a library that has it is preferred.
 */
#ifndef LEAT_LOAD_SOURCE_HDF5_LIBRARY_H
#define LEAT_LOAD_SOURCE_HDF5_LIBRARY_H

#include "base/err.h"

#include <stdint.h>
#include <sys/types.h>

typedef int64_t hdf5_id;   /* hid_t */
typedef uint64_t hdf5_u64; /* hsize_t, haddr_t */

/* struct H5E_error2_t */
struct hdf5_error {
    hdf5_id class_id, major_id, minor_id;
    unsigned line;
    const char *function, *file, *text;
};

typedef int hdf5_visit_chunk(const hdf5_u64 *offset, unsigned mask, hdf5_u64 address,
                             hdf5_u64 bytes, void *context);
typedef int hdf5_visit_error(unsigned depth, const struct hdf5_error *error, void *context);

#define HDF5_FUNCTIONS(X)                                                                          \
    X(int, H5Eset_auto2, (hdf5_id stack, void *function, void *context))                           \
    X(int, H5Ewalk2, (hdf5_id stack, int direction, hdf5_visit_error *visit, void *context))       \
    X(int, H5free_memory, (void *memory))                                                          \
    X(hdf5_id, H5Fopen, (const char *path, unsigned flags, hdf5_id access))                        \
    X(hdf5_id, H5Fget_create_plist, (hdf5_id file))                                                \
    X(ssize_t, H5Fget_name, (hdf5_id object, char *name, size_t bytes))                            \
    X(hdf5_id, H5Dopen2, (hdf5_id file, const char *name, hdf5_id access))                         \
    X(hdf5_id, H5Dget_type, (hdf5_id dataset))                                                     \
    X(hdf5_id, H5Dget_space, (hdf5_id dataset))                                                    \
    X(hdf5_id, H5Dget_create_plist, (hdf5_id dataset))                                             \
    X(hdf5_u64, H5Dget_offset, (hdf5_id dataset))                                                  \
    X(int, H5Dget_num_chunks, (hdf5_id dataset, hdf5_id space, hdf5_u64 * count))                  \
    X(int, H5Dget_chunk_info,                                                                      \
      (hdf5_id dataset, hdf5_id space, hdf5_u64 index, hdf5_u64 * offset, unsigned *mask,          \
       hdf5_u64 *address, hdf5_u64 *bytes))                                                        \
    X(int, H5Dread,                                                                                \
      (hdf5_id dataset, hdf5_id type, hdf5_id space, hdf5_id file_space, hdf5_id transfer,         \
       void *memory))                                                                              \
    X(int, H5Sget_simple_extent_ndims, (hdf5_id space))                                            \
    X(int, H5Sget_simple_extent_dims, (hdf5_id space, hdf5_u64 * shape, hdf5_u64 * most))          \
    X(int, H5Tget_class, (hdf5_id type))                                                           \
    X(size_t, H5Tget_size, (hdf5_id type))                                                         \
    X(int, H5Tget_order, (hdf5_id type))                                                           \
    X(int, H5Tget_sign, (hdf5_id type))                                                            \
    X(size_t, H5Tget_precision, (hdf5_id type))                                                    \
    X(int, H5Tget_fields,                                                                          \
      (hdf5_id type, size_t * sign, size_t * exponent, size_t * exponent_bits, size_t * mantissa,  \
       size_t * mantissa_bits))                                                                    \
    X(size_t, H5Tget_ebias, (hdf5_id type))                                                        \
    X(int, H5Tget_norm, (hdf5_id type))                                                            \
    X(hdf5_id, H5Tget_super, (hdf5_id type))                                                       \
    X(int, H5Tget_nmembers, (hdf5_id type))                                                        \
    X(char *, H5Tget_member_name, (hdf5_id type, unsigned number))                                 \
    X(int, H5Tget_member_value, (hdf5_id type, unsigned number, void *value))                      \
    X(size_t, H5Tget_member_offset, (hdf5_id type, unsigned number))                               \
    X(hdf5_id, H5Tget_member_type, (hdf5_id type, unsigned number))                                \
    X(int, H5Tget_array_ndims, (hdf5_id type))                                                     \
    X(int, H5Tget_array_dims2, (hdf5_id type, hdf5_u64 * shape))                                   \
    X(int, H5Pget_layout, (hdf5_id list))                                                          \
    X(int, H5Pget_chunk, (hdf5_id list, int most, hdf5_u64 *shape))                                \
    X(int, H5Pget_nfilters, (hdf5_id list))                                                        \
    X(int, H5Pget_filter2,                                                                         \
      (hdf5_id list, unsigned number, unsigned *flags, size_t *values_count, unsigned *values,     \
       size_t name_bytes, char *name, unsigned *config))                                           \
    X(int, H5Pget_external_count, (hdf5_id list))                                                  \
    X(int, H5Pget_fill_value, (hdf5_id list, hdf5_id type, void *value))                           \
    X(int, H5Pget_chunk_opts, (hdf5_id list, unsigned *options))                                   \
    X(int, H5Pget_userblock, (hdf5_id list, hdf5_u64 * bytes))

/* Those that only some have. H5Dread_chunk was renamed in 2.0. */
#define HDF5_FUNCTIONS_NEWER(X)                                                                    \
    X(int, H5Dchunk_iter,                                                                          \
      (hdf5_id dataset, hdf5_id transfer, hdf5_visit_chunk * visit, void *context))

struct hdf5_library {
    char path[512]; /* as it was found */
#define X(type, name, arguments) type(*name) arguments;
    HDF5_FUNCTIONS(X)
    HDF5_FUNCTIONS_NEWER(X)
#undef X
    int (*H5Dread_chunk)(hdf5_id dataset, hdf5_id transfer, const hdf5_u64 *offset, uint32_t *mask,
                         void *memory); /* NULL where it is not there */
};

/* Tries the given paths and the usual names. Once found, a library stays loaded until the process
 * ends: it has threads' keys and exit handlers of its own. */
int hdf5_library_load(const char *const *paths, uint32_t count, struct hdf5_library *ret_library,
                      struct leat_err *err);

#endif
