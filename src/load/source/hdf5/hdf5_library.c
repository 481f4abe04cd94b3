/* hdf5_library.c: see hdf5_library.h. */
#include "hdf5_library.h"

#include <dlfcn.h>
#include <stdio.h>

/* Sonames of 1.10.5 to 2.x, as upstream and Debian name them, the newest first. */
static const char *const usual[] = {"libhdf5.so.320", "libhdf5.so.310",   "libhdf5_serial.so.310",
                                    "libhdf5.so.200", "libhdf5.so.103",   "libhdf5_serial.so.103",
                                    "libhdf5.so",     "libhdf5_serial.so"};

static int find_functions(void *handle, struct hdf5_library *library)
{
#define X(type, name, arguments)                                                                   \
    library->name = (type(*) arguments)dlsym(handle, #name);                                       \
    if (!library->name)                                                                            \
        return -LEAT_E_VERSION;
    HDF5_FUNCTIONS(X)
#undef X
#define X(type, name, arguments) library->name = (type(*) arguments)dlsym(handle, #name);
    HDF5_FUNCTIONS_NEWER(X)
#undef X
    void *read_chunk = dlsym(handle, "H5Dread_chunk1");
    if (!read_chunk)
        read_chunk = dlsym(handle, "H5Dread_chunk");
    library->H5Dread_chunk =
        (int (*)(hdf5_id, hdf5_id, const hdf5_u64 *, uint32_t *, void *))read_chunk;
    return 0;
}

/* 0: there is none. 1: it is there and too old, and stays loaded unused. 2: it will do. 3: it has
 * everything. */
static int try_one(const char *path, struct hdf5_library *ret_library)
{
    struct hdf5_library library = {.path = ""};
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return 0;
    if (find_functions(handle, &library) < 0)
        return 1;
    snprintf(library.path, sizeof library.path, "%s", path);
    *ret_library = library;
    return library.H5Dchunk_iter ? 3 : 2;
}

int hdf5_library_load(const char *const *paths, uint32_t count, struct hdf5_library *ret_library,
                      struct leat_err *err)
{
    const uint32_t usual_count = sizeof usual / sizeof *usual;
    int best = 0;
    for (uint32_t i = 0; i < count + usual_count && best < 3; i++) {
        struct hdf5_library found;
        int worth = try_one(i < count ? paths[i] : usual[i - count], &found);
        if (worth > best && worth >= 2)
            *ret_library = found;
        best = worth > best ? worth : best;
    }
    if (best == 1)
        return err_set(err, -LEAT_E_VERSION,
                       "The libhdf5 of this machine is older than 1.10.5, which is the first that "
                       "says where chunks lie. `pip install h5py` brings a newer one.");
    if (!best)
        return err_set(err, -LEAT_E_MISSING,
                       "HDF5 files need libhdf5, which is not here: `pip install h5py` brings it, "
                       "or the package libhdf5-103-1 of Debian and Ubuntu.");
    return 0;
}
