/* hdf5.h: what tests see of a source of leat_source_hdf5(). */
#ifndef LEAT_LOAD_SOURCE_HDF5_H
#define LEAT_LOAD_SOURCE_HDF5_H

#include "load/source.h"
#include "chunk_cache.h"

/* Its unpacked chunks; NULL where nothing is packed. */
struct chunk_cache *hdf5_source_cache(struct leat_source *source);

#endif
