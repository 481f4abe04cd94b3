/* hdf5.h: what a source of leat_source_hdf5() tells of itself. */
#ifndef LEAT_LOAD_SOURCE_HDF5_H
#define LEAT_LOAD_SOURCE_HDF5_H

#include "load/source.h"
#include "load/source/chunk_cache.h"

/* What its cache has done so far; zeros where nothing is packed. */
struct chunk_cache_stats hdf5_source_stats(struct leat_source *source);

#endif
