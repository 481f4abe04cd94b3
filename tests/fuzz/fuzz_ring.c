/* fuzz_ring.c: hostile shared memory. The input is laid over the header, the tables, the heads of
 * the rings, a part, two lines, two engines, the calls of CUDA and two of their lines (the first of
 * each), as a broken process might scribble; then all that leat ever does with a ring is done. */
#include "record/ring_reader.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void scribble(struct rec_area *area, const uint8_t *data, size_t size)
{
    struct {
        void *place;
        size_t bytes;
    } regions[] = {
        {&area->header,               sizeof area->header          },
        {area->names,                 256                          },
        {area->loaders,               REC_LOADER_BYTES             },
        {&area->rings[0],             128 + 64 * sizeof(struct rec)},
        {&area->rings[REC_RINGS - 1], 128 + 8 * sizeof(struct rec) },
        {&area->parts[0][0],          32 + 64 * sizeof(uint64_t)   },
        {area->lines,                 2 * sizeof(struct rec_line)  },
        {area->engines,               2 * sizeof(struct rec_engine)},
        {&area->cuda,                 sizeof area->cuda            },
        {area->cuda_lines,            2 * sizeof *area->cuda_lines },
        {area->clock,                 sizeof area->clock           },
    };
    for (size_t i = 0; i < sizeof regions / sizeof *regions && size; i++) {
        size_t n = size < regions[i].bytes ? size : regions[i].bytes;
        memcpy(regions[i].place, data, n);
        data += n;
        size -= n;
    }
}

static void read_engines(const struct ring_reader *reader)
{
    struct ring_engine engine;
    for (uint32_t id = 0; id < REC_LOADERS + 2; id++)
        if (ring_reader_engine(reader, id, &engine) &&
            (id >= REC_LOADERS || strlen(engine.source) >= sizeof engine.source ||
             strlen(engine.order) >= sizeof engine.order))
            __builtin_trap();
}

static void read_cuda_lines(const struct ring_reader *reader)
{
    struct ring_cuda_line line;
    for (uint32_t id = 0; id < REC_CUDA_LINES + 2; id++)
        if (ring_reader_cuda_line(reader, id, &line) &&
            (id >= REC_CUDA_LINES || line.class >= LEAT_CUDA_CLASSES_COUNT ||
             strlen(line.file) >= REC_FILE_BYTES || strlen(line.function) >= REC_FUNCTION_BYTES))
            __builtin_trap();
}

/* What comes out of parts and lines may be any number, but nothing that leads outside. */
static void read_input(const struct ring_reader *reader)
{
    static struct ring_part part;
    struct ring_line line;
    for (uint32_t loader = 0; loader < REC_PART_LOADERS + 2; loader++)
        for (uint32_t i = 0; i < LEAT_PARTS_COUNT + 2; i++)
            if (ring_reader_part(reader, loader, i, &part) &&
                (loader >= REC_PART_LOADERS || i >= LEAT_PARTS_COUNT || part.n == 0))
                __builtin_trap();
    for (uint32_t id = 0; id < REC_LINES + 2; id++)
        if (ring_reader_line(reader, id, &line) &&
            (id >= REC_LINES || line.part >= LEAT_PARTS_COUNT || line.below < -1 ||
             line.below >= (int32_t)id || strlen(line.file) >= REC_FILE_BYTES ||
             strlen(line.function) >= REC_FUNCTION_BYTES))
            __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, sizeof(struct rec_area)) < 0)
        return 0;
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
    struct rec_area *area = mmap(NULL, sizeof *area, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (area != MAP_FAILED) {
        scribble(area, data, size);
        struct ring_reader reader;
        if (ring_reader_open(&reader, fd, NULL) == 0) {
            struct rec_header header;
            char name[REC_NAME_BYTES];
            struct leat_loader_info info;
            struct ring_record records[64];
            ring_reader_header(&reader, &header);
            for (uint32_t id = 0; id < REC_NAMES + 2; id++)
                ring_reader_name(&reader, id, name);
            for (uint32_t id = 0; id < REC_LOADERS + 2; id++)
                ring_reader_loader(&reader, id, &info);
            /* A ring never gives more than its length, whatever its head says. */
            int total = 0, n;
            while ((n = ring_reader_take(&reader, records, 64)) > 0)
                total += n;
            if (total > REC_RINGS * REC_RING_RECORDS)
                __builtin_trap();
            read_input(&reader);
            read_engines(&reader);
            read_cuda_lines(&reader);
            struct ring_cuda calls;
            ring_reader_cuda(&reader, &calls);
            ring_reader_lost(&reader);
            ring_reader_close(&reader);
        }
        munmap(area, sizeof *area);
    }
    close(fd);
    return 0;
}
