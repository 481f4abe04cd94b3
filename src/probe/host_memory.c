/* host_memory.c: see host_memory.h.
 *
 * The table of pinned ranges is sorted by start. Readers take no lock: they read `version`, search,
 * and read it again; a writer makes it odd while it moves entries. After TRIES they take the lock.
 * All fields are atomic, so a reader sees at worst a wrong result, and drops it.
 *
 * An entry of the cache of answers is one word, so it is never half written:
 *
 *     page (45 bits) | generation (9) | uses left (8) | host_memory (2)
 */
#include "probe/host_memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    RANGES = 1024, /* PyTorch's allocator of pinned memory keeps some tens */
    ANSWERS = 1024,
    USES = 255,
    TRIES = 64, /* then a reader waits: the writer may have lost the CPU in the middle */
    PAGE_SHIFT = 12,
    GENERATION_MASK = 511,
    CUDA_INVALID_VALUE = 1,   /* the driver's result for memory that it does not know */
    ATTRIBUTE_MEMORY_TYPE = 2 /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE; 1 is host memory */
};

struct range {
    _Atomic uintptr_t start, end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of writers */
static struct range ranges[RANGES];
static _Atomic uint32_t range_count;
static _Atomic uint64_t version;
static _Atomic uint64_t answers[ANSWERS];
static _Atomic uint32_t generation = 1;

/* ---- ranges ------------------------------------------------------------------------------- */

/* The number of ranges that start at or below the address. */
static uint32_t below(uintptr_t address)
{
    uint32_t low = 0, high = atomic_load_explicit(&range_count, memory_order_relaxed);
    high = high < RANGES ? high : RANGES;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (atomic_load_explicit(&ranges[mid].start, memory_order_relaxed) <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int is_inside(uintptr_t address)
{
    uint32_t at = below(address);
    return at > 0 && address < atomic_load_explicit(&ranges[at - 1].end, memory_order_relaxed);
}

static int is_pinned_range(uintptr_t address)
{
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = atomic_load_explicit(&version, memory_order_acquire);
        int inside = is_inside(address);
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && atomic_load_explicit(&version, memory_order_relaxed) == before)
            return inside;
    }
    pthread_mutex_lock(&lock);
    int inside = is_inside(address);
    pthread_mutex_unlock(&lock);
    return inside;
}

static void begin_change(void)
{
    pthread_mutex_lock(&lock);
    atomic_fetch_add_explicit(&version, 1, memory_order_seq_cst);
}

static void end_change(void)
{
    atomic_fetch_add_explicit(&version, 1, memory_order_seq_cst);
    pthread_mutex_unlock(&lock);
}

static void move(uint32_t to, uint32_t from)
{
    atomic_store(&ranges[to].start, atomic_load(&ranges[from].start));
    atomic_store(&ranges[to].end, atomic_load(&ranges[from].end));
}

void host_memory_add(const void *start, size_t bytes)
{
    if (!start || bytes == 0)
        return;
    begin_change();
    uint32_t count = atomic_load(&range_count), at = below((uintptr_t)start);
    int again = at > 0 && atomic_load(&ranges[at - 1].start) == (uintptr_t)start;
    if (again) {
        at--;
    } else if (count < RANGES) {
        for (uint32_t i = count; i > at; i--)
            move(i, i - 1);
        atomic_store(&range_count, count + 1);
    }
    if (again || count < RANGES) {
        atomic_store(&ranges[at].start, (uintptr_t)start);
        atomic_store(&ranges[at].end, (uintptr_t)start + bytes);
    }
    end_change();
    host_memory_drop_answers(); /* its pages may have been asked about while they were pageable */
}

void host_memory_remove(const void *start)
{
    begin_change();
    uint32_t count = atomic_load(&range_count), at = below((uintptr_t)start);
    if (at > 0 && atomic_load(&ranges[at - 1].start) == (uintptr_t)start) {
        for (uint32_t i = at; i < count; i++)
            move(i - 1, i);
        atomic_store(&range_count, count - 1);
    }
    end_change();
    host_memory_drop_answers();
}

void host_memory_drop_answers(void)
{
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

void host_memory_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    atomic_store(&version, 0);
    atomic_store(&range_count, 0);
    host_memory_drop_answers();
}

/* ---- answers ------------------------------------------------------------------------------ */

typedef int (*ask_fn)(void *data, int attribute, uint64_t address);

/* The driver is loaded before the first copy; until then it is looked for again. */
static ask_fn find_ask(void)
{
    static _Atomic(ask_fn) known;
    ask_fn ask = atomic_load(&known);
    void *handle = ask ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (handle) {
        ask = (ask_fn)dlsym(handle, "cuPointerGetAttribute");
        atomic_store(&known, ask);
    }
    if (!ask)
        dlerror();
    return ask;
}

/* 1 when the answer may be cached. */
static int ask_driver(uintptr_t address, enum host_memory *ret_memory)
{
    unsigned type = 0;
    ask_fn ask = find_ask();
    int result = ask ? ask(&type, ATTRIBUTE_MEMORY_TYPE, address) : -1;
    *ret_memory = result != 0 ? HOST_PAGEABLE : type == 1 ? HOST_PINNED : HOST_NOT;
    return result == 0 || result == CUDA_INVALID_VALUE;
}

enum host_memory host_memory_of(const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    if (is_pinned_range(address))
        return HOST_PINNED;
    uint64_t page = (uint64_t)address >> PAGE_SHIFT;
    uint64_t now = atomic_load_explicit(&generation, memory_order_relaxed) & GENERATION_MASK;
    uint64_t key = page << 19 | now << 10;
    _Atomic uint64_t *place = &answers[(page ^ page >> 10) % ANSWERS];
    uint64_t answer = atomic_load_explicit(place, memory_order_relaxed);
    if ((answer & ~1023ull) == key && (answer & 1020)) {
        atomic_store_explicit(place, answer - 4, memory_order_relaxed); /* one use less */
        return (enum host_memory)(answer & 3);
    }
    enum host_memory memory;
    if (ask_driver(address, &memory))
        atomic_store_explicit(place, key | USES << 2 | (uint64_t)memory, memory_order_relaxed);
    return memory;
}
