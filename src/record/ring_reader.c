/* ring_reader.c: see ring_reader.h. */
#include "record/ring_reader.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

int ring_reader_open(struct ring_reader *reader, int memfd, struct leat_err *err)
{
    struct stat st;
    *reader = (struct ring_reader){0};
    /* First the seal, then the size: a size that was read before the seal may have shrunk since. */
    int seals = fcntl(memfd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return err_set(err, -LEAT_E_FOREIGN,
                       "A process sent memory that could shrink under its reader.");
    if (fstat(memfd, &st) < 0)
        return err_set(err, -errno, "A process sent a descriptor that cannot be read: %s.",
                       err_text(errno));
    if (st.st_size < (off_t)sizeof(struct rec_area))
        return err_set(err, -LEAT_E_CORRUPT,
                       "A process sent %lld bytes of shared memory where %zu are needed.",
                       (long long)st.st_size, sizeof(struct rec_area));
    void *map = mmap(NULL, sizeof(struct rec_area), PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (map == MAP_FAILED)
        return err_set(err, -errno, "Shared memory of a process cannot be mapped: %s.",
                       err_text(errno));
    reader->area = map;
    const struct rec_header *h = &reader->area->header;
    int result = 0;
    if (h->magic != REC_MAGIC)
        result = err_set(err, -LEAT_E_FOREIGN, "A process sent memory that is not a leat record.");
    else if (h->version != REC_VERSION)
        result = err_set(err, -LEAT_E_VERSION,
                         "Process %d records in version %u, this leat reads %u. Use one leat.",
                         h->pid, h->version, REC_VERSION);
    if (result < 0)
        ring_reader_close(reader);
    return result;
}

void ring_reader_close(struct ring_reader *reader)
{
    if (reader->area)
        munmap(reader->area, sizeof *reader->area);
    *reader = (struct ring_reader){0};
}

static void end_text(char *text, size_t bytes)
{
    text[bytes - 1] = 0;
}

static uint32_t at_most(uint32_t value, uint32_t limit)
{
    return value < limit ? value : limit;
}

void ring_reader_header(const struct ring_reader *reader, struct rec_header *ret_header)
{
    memcpy(ret_header, &reader->area->header, sizeof *ret_header);
    end_text(ret_header->python, sizeof ret_header->python);
    end_text(ret_header->torch, sizeof ret_header->torch);
    end_text(ret_header->exception, sizeof ret_header->exception);
    end_text(ret_header->missing, sizeof ret_header->missing);
    end_text(ret_header->devices, sizeof ret_header->devices);
    ret_header->names_used = at_most(ret_header->names_used, REC_NAMES);
    ret_header->loaders_used = at_most(ret_header->loaders_used, REC_LOADERS);
    ret_header->lines_used = at_most(ret_header->lines_used, REC_LINES);
    ret_header->rings_used = at_most(ret_header->rings_used, REC_RINGS);
    if (ret_header->role > LEAT_ROLE_WORKER)
        ret_header->role = LEAT_ROLE_OTHER;
}

int ring_reader_name(const struct ring_reader *reader, uint32_t id, char ret_name[REC_NAME_BYTES])
{
    uint32_t used = at_most(atomic_load(&reader->area->header.names_used), REC_NAMES);
    if (id >= used)
        return 0;
    memcpy(ret_name, reader->area->names[id], REC_NAME_BYTES);
    end_text(ret_name, REC_NAME_BYTES);
    return 1;
}

int ring_reader_loader(const struct ring_reader *reader, uint32_t id,
                       struct leat_loader_info *ret_info)
{
    uint32_t used = at_most(atomic_load(&reader->area->header.loaders_used), REC_LOADERS);
    if (id >= used)
        return 0;
    memcpy(ret_info, &reader->area->loaders[id].info, sizeof *ret_info);
    end_text(ret_info->dataset, sizeof ret_info->dataset);
    end_text(ret_info->where, sizeof ret_info->where);
    return 1;
}

int ring_reader_part(const struct ring_reader *reader, uint32_t loader, uint32_t part,
                     struct ring_part *ret_part)
{
    if (loader >= REC_PART_LOADERS || part >= LEAT_PARTS_COUNT ||
        !(atomic_load(&reader->area->header.parts_used[loader]) >> part & 1))
        return 0;
    const struct rec_part *p = &reader->area->parts[loader][part];
    uint64_t n = atomic_load_explicit(&p->n, memory_order_acquire);
    if (n == 0)
        return 0;
    ret_part->n = n;
    ret_part->total_ns = atomic_load_explicit(&p->total_ns, memory_order_relaxed);
    ret_part->max_ns = atomic_load_explicit(&p->max_ns, memory_order_relaxed);
    ret_part->bytes = atomic_load_explicit(&p->bytes, memory_order_relaxed);
    for (uint32_t bin = 0; bin < DURATION_BUCKETS; bin++)
        ret_part->bins[bin] = atomic_load_explicit(&p->bins[bin], memory_order_relaxed);
    return 1;
}

int ring_reader_ready(const struct ring_reader *reader, uint32_t loader,
                      uint64_t ret_requests[REC_READY_COUNTS])
{
    if (loader >= REC_PART_LOADERS ||
        !(atomic_load(&reader->area->header.ready_used) >> loader & 1))
        return 0;
    for (uint32_t i = 0; i < REC_READY_COUNTS; i++)
        ret_requests[i] =
            atomic_load_explicit(&reader->area->ready[loader].requests[i], memory_order_relaxed);
    return 1;
}

int ring_reader_line(const struct ring_reader *reader, uint32_t id, struct ring_line *ret_line)
{
    uint32_t used = at_most(atomic_load(&reader->area->header.lines_used), REC_LINES);
    if (id >= used)
        return 0;
    const struct rec_line *l = &reader->area->lines[id];
    struct ring_line copy = {
        .samples = atomic_load_explicit(&l->samples, memory_order_acquire),
        .ns = atomic_load_explicit(&l->ns, memory_order_relaxed),
        .read_ns = atomic_load_explicit(&l->read_ns, memory_order_relaxed),
        .decode_ns = atomic_load_explicit(&l->decode_ns, memory_order_relaxed),
        .blocked_ns = atomic_load_explicit(&l->blocked_ns, memory_order_relaxed),
        .line = l->line,
        .below = l->below,
        .loader = l->loader,
        .part = l->part,
        .library = l->library != 0,
    };
    if (copy.part >= LEAT_PARTS_COUNT)
        return 0;
    if (copy.below < 0 || (uint32_t)copy.below >= id)
        copy.below = -1;
    memcpy(copy.file, l->file, sizeof copy.file);
    memcpy(copy.function, l->function, sizeof copy.function);
    end_text(copy.file, sizeof copy.file);
    end_text(copy.function, sizeof copy.function);
    *ret_line = copy;
    return 1;
}

int ring_reader_engine(const struct ring_reader *reader, uint32_t id,
                       struct ring_engine *ret_engine)
{
    if (id >= at_most(atomic_load(&reader->area->header.engines_used), REC_LOADERS))
        return 0;
    const struct rec_engine *e = &reader->area->engines[id];
    if (atomic_load(&e->texts_set) != 1)
        return 0;
    *ret_engine = (struct ring_engine){.threads = atomic_load(&e->threads),
                                       .cores = atomic_load(&e->cores),
                                       .ahead = atomic_load(&e->ahead),
                                       .memory_bytes = atomic_load(&e->memory_bytes)};
    memcpy(ret_engine->source, e->source, sizeof ret_engine->source);
    memcpy(ret_engine->order, e->order, sizeof ret_engine->order);
    end_text(ret_engine->source, sizeof ret_engine->source);
    end_text(ret_engine->order, sizeof ret_engine->order);
#define X(name) ret_engine->stages.name = atomic_load_explicit(&e->name, memory_order_relaxed);
    LEAT_STAGES(X)
#undef X
    return 1;
}

static uint64_t since(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

/* Values that are being written are read again; those of a process that was killed meanwhile are
 * used as they are. */
int ring_reader_cuda(const struct ring_reader *reader, struct ring_cuda *ret_cuda)
{
    enum { TRIES = 100 };
    const _Atomic uint32_t *used = &reader->area->header.cuda_used;
    uint32_t before = atomic_load(used);
    if (before == 0)
        return 0;
    struct leat_cuda_total at[REC_CUDA_WHENS][LEAT_CUDA_CLASSES_COUNT];
    for (int i = 0; i < TRIES; i++) {
        for (int when = 0; when < REC_CUDA_WHENS; when++)
            for (int k = 0; k < LEAT_CUDA_CLASSES_COUNT; k++)
                at[when][k] = (struct leat_cuda_total){reader->area->cuda.of[when][k].n,
                                                       reader->area->cuda.of[when][k].ns,
                                                       reader->area->cuda.of[when][k].bytes};
        for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++) {
            const struct rec_clock *c = &reader->area->clock[k];
            ret_cuda->clock[k] =
                (struct leat_clock_total){c->n, c->device_ns, c->idle_ns, c->hidden_ns};
        }
        uint32_t after = atomic_load(used);
        if (before == after && !(after & 1))
            break;
        before = after;
    }
    for (int span = 0; span < RING_CUDA_SPANS; span++)
        for (int k = 0; k < LEAT_CUDA_CLASSES_COUNT; k++) {
            static const struct leat_cuda_total nothing;
            const struct leat_cuda_total *end = &at[span][k];
            const struct leat_cuda_total *start = span > 0 ? &at[span - 1][k] : &nothing;
            ret_cuda->of[span][k] =
                (struct leat_cuda_total){since(end->n, start->n), since(end->ns, start->ns),
                                         since(end->bytes, start->bytes)};
        }
    return 1;
}

int ring_reader_cuda_line(const struct ring_reader *reader, uint32_t id,
                          struct ring_cuda_line *ret_line)
{
    if (id >= at_most(atomic_load(&reader->area->header.cuda_lines_used), REC_CUDA_LINES))
        return 0;
    const struct rec_cuda_line *l = &reader->area->cuda_lines[id];
    struct ring_cuda_line copy = {
        .n = atomic_load_explicit(&l->n, memory_order_acquire),
        .ns = atomic_load_explicit(&l->ns, memory_order_relaxed),
        .bytes = atomic_load_explicit(&l->bytes, memory_order_relaxed),
        .steps = atomic_load_explicit(&l->steps, memory_order_relaxed),
        .line = l->line,
        .class = l->class,
    };
    if (copy.class >= LEAT_CUDA_CLASSES_COUNT)
        return 0;
    memcpy(copy.file, l->file, sizeof copy.file);
    memcpy(copy.function, l->function, sizeof copy.function);
    end_text(copy.file, sizeof copy.file);
    end_text(copy.function, sizeof copy.function);
    *ret_line = copy;
    return 1;
}

int ring_reader_take(struct ring_reader *reader, struct ring_record *records, int most)
{
    int taken = 0;
    uint32_t rings = at_most(atomic_load(&reader->area->header.rings_used), REC_RINGS);
    for (uint32_t i = 0; i < rings && taken < most; i++) {
        struct rec_ring *ring = &reader->area->rings[i];
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        /* A head further away than the ring is long was not written by our recorder. What lies
         * between is gone; continue at the producer's position. */
        if (head - tail > REC_RING_RECORDS) {
            reader->lost_bad++;
            tail = head;
        }
        while (tail != head && taken < most) {
            struct ring_record *out = &records[taken];
            out->rec = ring->records[tail++ % REC_RING_RECORDS];
            out->tid = ring->tid;
            if (out->rec.kind == LEAT_REC_NONE || out->rec.kind >= LEAT_REC_KINDS ||
                out->rec.t1_ns < out->rec.t0_ns)
                reader->lost_bad++;
            else
                taken++;
        }
        atomic_store_explicit(&ring->tail, tail, memory_order_release);
    }
    return taken;
}

uint64_t ring_reader_lost(const struct ring_reader *reader)
{
    uint64_t lost = reader->lost_bad + atomic_load(&reader->area->header.threads_lost);
    uint32_t rings = at_most(atomic_load(&reader->area->header.rings_used), REC_RINGS);
    for (uint32_t i = 0; i < rings; i++)
        lost += atomic_load_explicit(&reader->area->rings[i].lost, memory_order_relaxed);
    return lost;
}

void ring_reader_stop(struct ring_reader *reader)
{
    atomic_store(&reader->area->header.stop, 1);
}
