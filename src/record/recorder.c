/* recorder.c: the writing side, in the recording process.
 *
 * The state is one pointer to the mapped area and, for each thread, one pointer to its ring. Only
 * opening calls the kernel, at start-up or with the first record of a forked child. The socket is
 * non-blocking and closed at once: leat has the memfd from then on.
 *
 * fork: the child must never write into its parent's memory. An atfork handler unmaps the area in
 * the child; the next record opens a new one. `generation` shows a thread that its ring pointer is
 * out of date.
 *
 * Threads: `open_lock` protects opening, the assignment of rings, and the tables. The ring of a
 * thread that has ended is given to another one when leat has read all of it.
 */
#include "leat/recorder.h"

#include "base/clock.h"
#include "base/str.h"
#include "record/layout.h"
#include "record/probe_abi.h"
#include "record/recorder_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rec_area *_Atomic area; /* NULL: not recording */
static atomic_uint generation = 1;    /* raised by fork and close */
static atomic_uint free_rings;        /* returned by threads that ended: a bit each */
static pthread_key_t at_thread_end;   /* calls return_ring() */
static int at_thread_end_set;
static atomic_int connect_failed; /* leat could not be reached: do not retry */
static atomic_int wanted;         /* open was called in this process or an ancestor */

/* 1 after the first call of CUDA in this process. */
static atomic_int cuda_called;
static atomic_uint step_kinds;                   /* the STEP_KINDS recorded so far, a bit each */
static _Atomic(leat_probe_read_fn) read_probe;   /* NULL: calls of CUDA are not counted */
static _Atomic(leat_probe_phase_fn) probe_phase; /* NULL: idle time of the device is not measured */
static _Atomic(leat_probe_clock_fn) read_clock;
static atomic_flag cuda_busy = ATOMIC_FLAG_INIT; /* one thread updates; the others skip */
static _Atomic uint64_t cuda_steps;              /* steps that have ended */

/* The records at which a step begins or ends. */
enum {
    TRAINS = 1 << LEAT_REC_OPTIMIZER | 1 << LEAT_REC_STEP,
    STEP_KINDS = TRAINS | 1 << LEAT_REC_FETCH
};

/* State of one thread. */
static __thread struct mine {
    struct rec_ring *ring;
    uint64_t tail; /* last read tail of the ring: reading it each time would share its cache line
                      with leat */
    unsigned generation;
    int backward_depth;
} mine;

/* A forked child has one thread, so no lock is needed, and none may be taken: another thread of the
 * parent may hold it. */
static void after_fork_in_child(void)
{
    struct rec_area *old = atomic_exchange(&area, NULL);
    if (old)
        munmap(old, sizeof *old);
    atomic_fetch_add(&generation, 1);
    atomic_store(&free_rings, 0);
    pthread_mutex_init(&open_lock, NULL);
    atomic_flag_clear(&cuda_busy);
    atomic_store(&cuda_called, 0);
    atomic_store(&step_kinds, 0);
    atomic_store(&cuda_steps, 0);
    mine.ring = NULL;
    mine.backward_depth = 0;
}

static int send_memfd(const char *path, int memfd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    struct rec_hello hello = {REC_MAGIC, REC_VERSION, (int32_t)getpid()};
    struct iovec part = {&hello, sizeof hello};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &memfd, sizeof(int));
    int result = 0;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
        result = -errno;
    close(fd);
    return result;
}

static int env_int(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long value = text ? strtol(text, &end, 10) : -1;
    return text && *text && !*end && value >= 0 && value < 1 << 24 ? (int)value : -1;
}

/* Fills a fresh area (zeroed by the kernel) with what is known at once. */
static void fill_header(struct rec_header *h)
{
    h->magic = REC_MAGIC;
    h->version = REC_VERSION;
    h->pid = (int32_t)getpid();
    h->ppid = (int32_t)getppid();
    h->start_ns = clock_now_ns();
    atomic_store(&h->worker_id, -1);
    atomic_store(&h->worker_loader, -1);
    /* torchrun, srun and MPI launchers pass the rank in the environment. */
    atomic_store(&h->rank, env_int("RANK"));
    atomic_store(&h->local_rank, env_int("LOCAL_RANK"));
    atomic_store(&h->world_size, env_int("WORLD_SIZE"));
}

static void first_cuda_call(void)
{
    atomic_store(&cuda_called, 1);
}

/* The probe is in this process only if `leat run` preloaded it. */
static void find_probe(void)
{
    atomic_store(&read_probe, (leat_probe_read_fn)dlsym(RTLD_DEFAULT, LEAT_PROBE_READ));
    atomic_store(&probe_phase, (leat_probe_phase_fn)dlsym(RTLD_DEFAULT, LEAT_PROBE_PHASE));
    atomic_store(&read_clock, (leat_probe_clock_fn)dlsym(RTLD_DEFAULT, LEAT_PROBE_CLOCK));
    leat_probe_on_first_call_fn meet =
        (leat_probe_on_first_call_fn)dlsym(RTLD_DEFAULT, LEAT_PROBE_ON_FIRST_CALL);
    if (meet)
        meet(first_cuda_call);
}

/* Called when a thread that has a ring ends. */
static void return_ring(void *value)
{
    struct mine *my = value;
    pthread_mutex_lock(&open_lock);
    struct rec_area *a = atomic_load(&area);
    if (a && my->ring && my->generation == atomic_load(&generation))
        atomic_fetch_or(&free_rings, 1u << (my->ring - a->rings));
    my->ring = NULL;
    my->generation = 0;
    pthread_mutex_unlock(&open_lock);
}

/* Before this library is unloaded. */
__attribute__((destructor)) static void forget_thread_ends(void)
{
    if (at_thread_end_set)
        pthread_key_delete(at_thread_end);
}

static int open_locked(void)
{
    static int handler_set;
    if (atomic_load(&area))
        return 0;
    if (atomic_load(&connect_failed))
        return -ENOTCONN;
    const char *path = getenv("LEAT_SOCKET");
    if (!path || !*path) {
        /* Records then cost almost nothing; a later open may find a socket. */
        atomic_store(&wanted, 0);
        return -ENOENT;
    }
    int fd = memfd_create("leat-record", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    int result = 0;
    struct rec_area *fresh = MAP_FAILED;
    if (ftruncate(fd, sizeof *fresh) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0 ||
        (fresh = mmap(NULL, sizeof *fresh, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) ==
            MAP_FAILED) {
        result = -errno;
    } else {
        fill_header(&fresh->header);
        result = send_memfd(path, fd);
        if (result < 0)
            munmap(fresh, sizeof *fresh);
    }
    close(fd);
    if (result < 0) {
        /* A full backlog may become free; a closed socket never comes back. */
        if (result != -EAGAIN)
            atomic_store(&connect_failed, 1);
        return result;
    }
    if (!handler_set) {
        handler_set = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
        at_thread_end_set = pthread_key_create(&at_thread_end, return_ring) == 0;
        find_probe();
    }
    if (atomic_load(&read_probe))
        atomic_fetch_or(&fresh->header.signals, LEAT_SIGNAL_CUDA);
    atomic_store(&area, fresh);
    return 0;
}

int leat_recorder_open(void)
{
    pthread_mutex_lock(&open_lock);
    atomic_store(&wanted, 1);
    int result = open_locked();
    pthread_mutex_unlock(&open_lock);
    return result;
}

/* The area; a forked child opens it first. */
static struct rec_area *live_area(void)
{
    struct rec_area *a = atomic_load_explicit(&area, memory_order_acquire);
    if (a || !atomic_load(&wanted) || atomic_load(&connect_failed))
        return a;
    leat_recorder_open();
    return atomic_load(&area);
}

/* ---- calls of CUDA ------------------------------------------------------------------------ */

/* Stores with release order: none is visible before the odd `cuda_used` that precedes them. */
static void put_cuda(struct rec_cuda *table, enum rec_cuda_when when,
                     const struct leat_cuda_total *totals)
{
    for (int k = 0; k < LEAT_CUDA_CLASSES_COUNT; k++) {
        atomic_store_explicit(&table->of[when][k].n, totals[k].n, memory_order_release);
        atomic_store_explicit(&table->of[when][k].ns, totals[k].ns, memory_order_release);
        atomic_store_explicit(&table->of[when][k].bytes, totals[k].bytes, memory_order_release);
    }
}

static void put_clock(struct rec_clock *table)
{
    leat_probe_clock_fn probe = atomic_load_explicit(&read_clock, memory_order_relaxed);
    struct leat_clock_total totals[LEAT_CLOCK_PHASES_COUNT];
    if (!probe || !probe(LEAT_CLOCK_PHASES_COUNT, totals))
        return;
    for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++) {
        atomic_store_explicit(&table[k].n, totals[k].n, memory_order_release);
        atomic_store_explicit(&table[k].device_ns, totals[k].device_ns, memory_order_release);
        atomic_store_explicit(&table[k].idle_ns, totals[k].idle_ns, memory_order_release);
        atomic_store_explicit(&table[k].hidden_ns, totals[k].hidden_ns, memory_order_release);
    }
}

void leat_gpu_phase(enum leat_clock_phase phase)
{
    if (!atomic_load_explicit(&cuda_called, memory_order_relaxed) ||
        !atomic_load_explicit(&area, memory_order_relaxed))
        return;
    leat_probe_phase_fn mark = atomic_load_explicit(&probe_phase, memory_order_relaxed);
    if (mark)
        mark(phase);
}

/* Copies the probe's totals into the shared memory. A step ends with its optimizer, or without one
 * (inference) with the next batch. Totals at the first batch are kept separately: making the model
 * and loading libraries belong to no step. `before`: the STEP_KINDS recorded earlier.
 * LEAT_REC_NONE: the process ends. */
static void write_cuda_totals(struct rec_area *a, enum leat_record_kind kind, unsigned before)
{
    leat_probe_read_fn probe = atomic_load_explicit(&read_probe, memory_order_relaxed);
    struct leat_cuda_total totals[LEAT_CUDA_CLASSES_COUNT];
    if (!probe || atomic_flag_test_and_set(&cuda_busy))
        return;
    if (probe(LEAT_CUDA_CLASSES_COUNT, totals)) {
        atomic_fetch_add(&a->header.cuda_used, 1);
        if (!before)
            put_cuda(&a->cuda, REC_CUDA_BEGUN, totals);
        if (kind != LEAT_REC_NONE) {
            put_cuda(&a->cuda, REC_CUDA_STEPPED, totals);
            atomic_fetch_add(&cuda_steps, 1);
        }
        put_cuda(&a->cuda, REC_CUDA_LAST, totals);
        put_clock(a->clock);
        atomic_fetch_add(&a->header.cuda_used, 1);
    }
    atomic_flag_clear(&cuda_busy);
}

/* A record of one of STEP_KINDS was written. */
static void end_step(struct rec_area *a, enum leat_record_kind kind)
{
    unsigned before = atomic_load_explicit(&step_kinds, memory_order_relaxed);
    if (!(before & 1u << kind))
        before = atomic_fetch_or(&step_kinds, 1u << kind);
    /* With an optimizer, a batch does not end a step. */
    if (atomic_load_explicit(&cuda_called, memory_order_relaxed) &&
        (kind != LEAT_REC_FETCH || !(before & TRAINS)))
        write_cuda_totals(a, kind, before);
}

void leat_recorder_close(void)
{
    pthread_mutex_lock(&open_lock);
    struct rec_area *a = atomic_exchange(&area, NULL);
    if (a)
        write_cuda_totals(a, LEAT_REC_NONE, atomic_load(&step_kinds));
    atomic_store(&wanted, 0);
    atomic_store(&free_rings, 0);
    atomic_fetch_add(&generation, 1);
    if (a)
        atomic_store(&a->header.closed, 1);
    /* The mapping stays: another thread may be in the middle of a record. It goes with the
     * process. */
    pthread_mutex_unlock(&open_lock);
}

int leat_recording(void)
{
    struct rec_area *a = live_area();
    return a && !atomic_load_explicit(&a->header.stop, memory_order_relaxed);
}

uint64_t leat_now_ns(void)
{
    return clock_now_ns();
}

/* A ring that was returned and has been read to its end: its records have the id of the thread that
 * returned it. Or one that was never used. NULL: none. */
static struct rec_ring *find_ring(struct rec_area *a)
{
    for (uint32_t i = 0; i < REC_RINGS; i++) {
        struct rec_ring *ring = &a->rings[i];
        if (atomic_load(&free_rings) >> i & 1 &&
            atomic_load_explicit(&ring->tail, memory_order_acquire) == atomic_load(&ring->head)) {
            atomic_fetch_and(&free_rings, ~(1u << i));
            return ring;
        }
    }
    uint32_t used = atomic_load(&a->header.rings_used);
    if (used >= REC_RINGS)
        return NULL;
    atomic_store(&a->header.rings_used, used + 1);
    return &a->rings[used];
}

static struct rec_ring *claim_ring(struct rec_area *a, struct mine *my)
{
    unsigned now = atomic_load(&generation);
    if (my->generation == now && !atomic_load_explicit(&free_rings, memory_order_relaxed))
        return my->ring; /* asked before, and no ring was free */
    pthread_mutex_lock(&open_lock);
    my->generation = now;
    my->ring = a == atomic_load(&area) ? find_ring(a) : NULL;
    if (my->ring) {
        my->ring->tid = (int32_t)syscall(SYS_gettid);
        my->tail = atomic_load(&my->ring->tail);
        if (at_thread_end_set)
            pthread_setspecific(at_thread_end, my);
    }
    pthread_mutex_unlock(&open_lock);
    return my->ring;
}

/* Whether leat has read records since the last check; if not, a record is lost. */
static int ring_has_space(struct rec_ring *ring, uint64_t head, struct mine *my)
{
    my->tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (head - my->tail < REC_RING_RECORDS)
        return 1;
    uint64_t lost = atomic_load_explicit(&ring->lost, memory_order_relaxed);
    atomic_store_explicit(&ring->lost, lost + 1, memory_order_relaxed);
    return 0;
}

void leat_record(enum leat_record_kind kind, unsigned flags, uint32_t id, uint64_t arg,
                 uint64_t t0_ns, uint64_t t1_ns)
{
    struct rec_area *a = live_area();
    if (!a || atomic_load_explicit(&a->header.stop, memory_order_relaxed))
        return;
    struct mine *my = &mine;
    struct rec_ring *ring = my->ring;
    if (!ring || my->generation != atomic_load_explicit(&generation, memory_order_relaxed))
        ring = claim_ring(a, my);
    if (!ring) {
        atomic_fetch_add_explicit(&a->header.threads_lost, 1, memory_order_relaxed);
        return;
    }
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head - my->tail >= REC_RING_RECORDS && !ring_has_space(ring, head, my))
        return;
    if (kind == LEAT_REC_OPTIMIZER && my->backward_depth > 0)
        flags |= LEAT_REC_NESTED;
    ring->records[head % REC_RING_RECORDS] = (struct rec){.t0_ns = t0_ns,
                                                          .t1_ns = t1_ns,
                                                          .arg = arg,
                                                          .id = id,
                                                          .kind = (uint16_t)kind,
                                                          .flags = (uint16_t)flags};
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    if (1u << kind & STEP_KINDS)
        end_step(a, kind);
}

static void copy_text(char *place, size_t bytes, const char *text)
{
    snprintf(place, bytes, "%s", text ? text : "");
}

static void add_parts(uint32_t loader, enum leat_part part, const uint64_t *ns, size_t count,
                      uint64_t bytes)
{
    struct rec_area *a = live_area();
    if (!a || atomic_load_explicit(&a->header.stop, memory_order_relaxed))
        return;
    if ((unsigned)part >= LEAT_PARTS_COUNT)
        return;
    loader = loader < REC_PART_LOADERS ? loader : REC_PART_LOADERS - 1;
    struct rec_part *p = &a->parts[loader][part];
    uint64_t total = 0, longest = 0;
    for (size_t i = 0; i < count; i++) {
        atomic_fetch_add_explicit(&p->bins[duration_bucket_of(ns[i])], 1, memory_order_relaxed);
        total += ns[i];
        longest = ns[i] > longest ? ns[i] : longest;
    }
    atomic_fetch_add_explicit(&p->total_ns, total, memory_order_relaxed);
    if (bytes)
        atomic_fetch_add_explicit(&p->bytes, bytes, memory_order_relaxed);
    uint64_t most = atomic_load_explicit(&p->max_ns, memory_order_relaxed);
    while (longest > most &&
           !atomic_compare_exchange_weak_explicit(&p->max_ns, &most, longest, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
    atomic_fetch_add_explicit(&p->n, count, memory_order_release);
    uint8_t bit = (uint8_t)(1u << part);
    if (!(atomic_load_explicit(&a->header.parts_used[loader], memory_order_relaxed) & bit))
        atomic_fetch_or(&a->header.parts_used[loader], bit);
}

void leat_part(uint32_t loader, enum leat_part part, uint64_t ns, uint64_t bytes)
{
    add_parts(loader, part, &ns, 1, bytes);
}

void leat_parts(uint32_t loader, enum leat_part part, const uint64_t *ns, size_t count)
{
    if (count > 0)
        add_parts(loader, part, ns, count, 0);
}

void leat_ready(uint32_t loader, uint64_t batches)
{
    struct rec_area *a = live_area();
    if (!a || atomic_load_explicit(&a->header.stop, memory_order_relaxed))
        return;
    loader = loader < REC_PART_LOADERS ? loader : REC_PART_LOADERS - 1;
    batches = batches < REC_READY_COUNTS ? batches : REC_READY_COUNTS - 1;
    atomic_fetch_add_explicit(&a->ready[loader].requests[batches], 1, memory_order_relaxed);
    uint32_t bit = 1u << loader;
    if (!(atomic_load_explicit(&a->header.ready_used, memory_order_relaxed) & bit))
        atomic_fetch_or(&a->header.ready_used, bit);
}

static struct rec_engine *engine_of(struct rec_area *a, uint32_t loader)
{
    if (!a || atomic_load_explicit(&a->header.stop, memory_order_relaxed))
        return NULL;
    return &a->engines[loader < REC_LOADERS ? loader : REC_LOADERS - 1];
}

void leat_recorder_stages(uint32_t loader, const struct leat_stages *more)
{
    struct rec_engine *e = engine_of(live_area(), loader);
    if (!e)
        return;
#define X(name)                                                                                    \
    if (more->name)                                                                                \
        atomic_fetch_add_explicit(&e->name, more->name, memory_order_relaxed);
    LEAT_STAGES(X)
#undef X
}

/* Copies what fits, in whole UTF-8 characters. Of a path the end is kept, with the file name. */
static void cut_text(char *place, size_t bytes, const char *text, int keep_end)
{
    const char dots[] = "...";
    size_t length = text ? strlen(text) : 0, room = bytes - 1;
    if (length > room && keep_end) {
        const char *end = text + length - (room - (sizeof dots - 1));
        while (((unsigned char)*end & 0xc0) == 0x80)
            end++;
        snprintf(place, bytes, "%s%s", dots, end);
        return;
    }
    if (length > room)
        length = str_whole_utf8(text, room);
    memcpy(place, text ? text : "", length);
    place[length] = 0;
}

void leat_recorder_engine(uint32_t loader, const struct leat_engine_info *info)
{
    struct rec_area *a = live_area();
    struct rec_engine *e = engine_of(a, loader);
    if (!e)
        return;
    atomic_store(&e->threads, info->threads);
    atomic_store(&e->cores, info->cores);
    atomic_store(&e->ahead, info->ahead);
    atomic_store(&e->memory_bytes, info->memory_bytes);
    pthread_mutex_lock(&open_lock);
    if (!atomic_load(&e->texts_set)) {
        cut_text(e->source, sizeof e->source, info->source, 0);
        cut_text(e->order, sizeof e->order, info->order, 0);
        atomic_store(&e->texts_set, 1);
        uint32_t end = (uint32_t)(e - a->engines) + 1;
        if (atomic_load(&a->header.engines_used) < end)
            atomic_store(&a->header.engines_used, end);
    }
    pthread_mutex_unlock(&open_lock);
}

static int same_line(const struct rec_line *a, const struct rec_line *b)
{
    return a->line == b->line && a->below == b->below && a->loader == b->loader &&
           a->part == b->part && strcmp(a->function, b->function) == 0 &&
           strcmp(a->file, b->file) == 0;
}

int leat_recorder_line(const struct leat_line *line)
{
    struct rec_area *a = live_area();
    if (!a || atomic_load_explicit(&a->header.stop, memory_order_relaxed) ||
        (unsigned)line->part >= LEAT_PARTS_COUNT)
        return -1;
    uint32_t used = atomic_load(&a->header.lines_used), id = 0;
    struct rec_line wanted_line = {.line = line->line,
                                   .below = line->below,
                                   .loader = line->loader,
                                   .part = (uint16_t)line->part,
                                   .library = line->library != 0};
    cut_text(wanted_line.file, sizeof wanted_line.file, line->file, 1);
    cut_text(wanted_line.function, sizeof wanted_line.function, line->function, 0);
    while (id < used && !same_line(&a->lines[id], &wanted_line))
        id++;
    if (id >= REC_LINES) {
        atomic_fetch_add_explicit(&a->header.lines_lost, 1, memory_order_relaxed);
        return -1;
    }
    struct rec_line *l = &a->lines[id];
    if (id == used) {
        l->line = wanted_line.line;
        l->below = wanted_line.below;
        l->loader = wanted_line.loader;
        l->part = wanted_line.part;
        l->library = wanted_line.library;
        memcpy(l->file, wanted_line.file, sizeof l->file);
        memcpy(l->function, wanted_line.function, sizeof l->function);
        atomic_store(&a->header.lines_used, used + 1);
    }
    atomic_fetch_add_explicit(&l->ns, line->ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->read_ns, line->read_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->decode_ns, line->decode_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->blocked_ns, line->blocked_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->samples, 1, memory_order_release);
    return (int)id;
}

uint64_t leat_recorder_steps(void)
{
    return atomic_load_explicit(&cuda_steps, memory_order_relaxed);
}

static int same_cuda_line(const struct rec_cuda_line *a, const struct rec_cuda_line *b)
{
    return a->line == b->line && a->class == b->class && strcmp(a->function, b->function) == 0 &&
           strcmp(a->file, b->file) == 0;
}

int leat_recorder_cuda_line(const struct leat_cuda_line *line)
{
    struct rec_area *a = live_area();
    if (!a || atomic_load_explicit(&a->header.stop, memory_order_relaxed) ||
        (unsigned)line->what >= LEAT_CUDA_CLASSES_COUNT)
        return -1;
    uint32_t used = atomic_load(&a->header.cuda_lines_used), id = 0;
    struct rec_cuda_line wanted_line = {.line = line->line, .class = (uint32_t)line->what};
    cut_text(wanted_line.file, sizeof wanted_line.file, line->file, 1);
    cut_text(wanted_line.function, sizeof wanted_line.function, line->function, 0);
    while (id < used && !same_cuda_line(&a->cuda_lines[id], &wanted_line))
        id++;
    if (id >= REC_CUDA_LINES)
        return -1;
    struct rec_cuda_line *l = &a->cuda_lines[id];
    if (id == used) {
        l->line = wanted_line.line;
        l->class = wanted_line.class;
        memcpy(l->file, wanted_line.file, sizeof l->file);
        memcpy(l->function, wanted_line.function, sizeof l->function);
        atomic_store(&a->header.cuda_lines_used, used + 1);
    }
    atomic_fetch_add_explicit(&l->ns, line->ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->bytes, line->bytes, memory_order_relaxed);
    if (atomic_load_explicit(&l->steps, memory_order_relaxed) < line->steps)
        atomic_store_explicit(&l->steps, line->steps, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->n, line->n, memory_order_release);
    return 0;
}

void leat_recorder_nest(int change)
{
    mine.backward_depth += change;
}

uint32_t leat_recorder_name(const char *name)
{
    struct rec_area *a = live_area();
    if (!a)
        return 0;
    char cut[REC_NAME_BYTES];
    copy_text(cut, sizeof cut, name);
    pthread_mutex_lock(&open_lock);
    uint32_t used = atomic_load(&a->header.names_used);
    uint32_t id = 0;
    while (id < used && strcmp(a->names[id], cut) != 0)
        id++;
    if (id == used && used < REC_NAMES) {
        memcpy(a->names[id], cut, sizeof cut);
        atomic_store(&a->header.names_used, used + 1);
    } else if (id == used) {
        id = REC_NAMES - 1;
    }
    pthread_mutex_unlock(&open_lock);
    return id;
}

uint32_t leat_recorder_loader(const struct leat_loader_info *info)
{
    struct rec_area *a = live_area();
    if (!a)
        return 0;
    pthread_mutex_lock(&open_lock);
    uint32_t id = atomic_load(&a->header.loaders_used);
    if (id < REC_LOADERS) {
        a->loaders[id].info = *info;
        atomic_store(&a->header.loaders_used, id + 1);
    } else {
        id = REC_LOADERS - 1;
    }
    pthread_mutex_unlock(&open_lock);
    return id;
}

void leat_recorder_role(enum leat_role role, int worker_id)
{
    struct rec_area *a = live_area();
    if (a) {
        atomic_store(&a->header.role, (uint32_t)role);
        atomic_store(&a->header.worker_id, worker_id);
    }
}

void leat_recorder_worker_loader(int loader)
{
    struct rec_area *a = live_area();
    if (a)
        atomic_store(&a->header.worker_loader, loader);
}

void leat_recorder_rank(int rank, int local_rank, int world_size)
{
    struct rec_area *a = live_area();
    if (a) {
        atomic_store(&a->header.rank, rank);
        atomic_store(&a->header.local_rank, local_rank);
        atomic_store(&a->header.world_size, world_size);
    }
}

void leat_recorder_signals(unsigned signals)
{
    struct rec_area *a = live_area();
    if (a)
        atomic_fetch_or(&a->header.signals, signals);
}

void leat_recorder_cost(uint64_t ns_per_record)
{
    struct rec_area *a = live_area();
    if (a)
        atomic_store(&a->header.cost_ns, ns_per_record);
}

void leat_recorder_fact(const char *key, const char *value)
{
    struct rec_area *a = live_area();
    if (!a)
        return;
    const struct {
        const char *key;
        char *place;
        size_t bytes;
    } places[] = {
        {"python",    a->header.python,    sizeof a->header.python   },
        {"torch",     a->header.torch,     sizeof a->header.torch    },
        {"exception", a->header.exception, sizeof a->header.exception},
        {"missing",   a->header.missing,   sizeof a->header.missing  },
        {"devices",   a->header.devices,   sizeof a->header.devices  },
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strcmp(key, places[i].key) == 0)
            copy_text(places[i].place, places[i].bytes, value);
}

const struct leat_recorder_calls leat_recorder_calls = {.recording = leat_recording,
                                                        .part = leat_part,
                                                        .ready = leat_ready,
                                                        .engine = leat_recorder_engine,
                                                        .stages = leat_recorder_stages};
