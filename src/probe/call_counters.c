/* call_counters.c: see call_counters.h. */
#include "probe/call_counters.h"

#include <pthread.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { SLOTS = 64 };

__thread struct call_thread call_thread;
bool call_ticks_steady;

static struct call_slot slots[SLOTS + 1];   /* the last is shared */
static _Atomic uint32_t slots_used;         /* those below it have been taken at some time */
static void (*_Atomic on_first_call)(void); /* NULL: no callback */
static pthread_once_t begun = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor gives the slot of a thread back */
static uint64_t first_ns, first_ticks;

static void give_back(void *slot)
{
    call_thread.slot = NULL;
    atomic_store_explicit(&((struct call_slot *)slot)->taken, 0, memory_order_release);
}

/* Asked at the first call and not at load: in a virtual machine CPUID takes a trip to the
 * hypervisor, and most processes never make a call. */
static bool ticks_are_steady(void)
{
#if defined(__x86_64__) && !defined(LEAT_TEST_CLOCK)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && d >> 8 & 1;
#else
    return false;
#endif
}

static void begin(void)
{
    call_ticks_steady = ticks_are_steady();
    first_ns = clock_now_ns();
    first_ticks = call_ticks();
    if (pthread_key_create(&key, give_back) != 0)
        key = (pthread_key_t)-1;
}

void call_counters_on_first_call(void (*callback)(void))
{
    atomic_store(&on_first_call, callback);
    if (atomic_load(&slots_used))
        callback();
}

/* Called after `slots_used` was raised: a callback that is set from now on is called at once. */
static void report_first_call(void)
{
    void (*callback)(void) = atomic_load(&on_first_call);
    if (callback)
        callback();
}

/* A slot that is given back is one that a destructor has run for; without a key none is. */
void call_slot_take(void)
{
    pthread_once(&begun, begin);
    for (uint32_t i = 0; i < SLOTS && key != (pthread_key_t)-1; i++) {
        uint32_t free = 0;
        if (!atomic_compare_exchange_strong(&slots[i].taken, &free, 1))
            continue;
        if (pthread_setspecific(key, &slots[i]) != 0) {
            atomic_store(&slots[i].taken, 0);
            break;
        }
        uint32_t used = atomic_load(&slots_used);
        while (used < i + 1 && !atomic_compare_exchange_weak(&slots_used, &used, i + 1))
            ;
        report_first_call();
        call_thread.slot = &slots[i];
        call_thread.shared = 0;
        return;
    }
    atomic_store(&slots_used, SLOTS + 1);
    report_first_call();
    call_thread.slot = &slots[SLOTS];
    call_thread.shared = 1;
}

static uint64_t nanoseconds(uint64_t ticks, uint64_t ticks_passed, uint64_t ns_passed)
{
    if (!call_ticks_steady || ticks_passed == 0)
        return ticks;
    return (uint64_t)((unsigned __int128)ticks * ns_passed / ticks_passed);
}

uint64_t call_nanoseconds(uint64_t ticks)
{
    return nanoseconds(ticks, call_ticks() - first_ticks, clock_now_ns() - first_ns);
}

bool call_counters_read(struct leat_cuda_total ret_totals[LEAT_CUDA_CLASSES_COUNT])
{
    uint32_t used = atomic_load_explicit(&slots_used, memory_order_acquire);
    if (used == 0)
        return false;
    memset(ret_totals, 0, LEAT_CUDA_CLASSES_COUNT * sizeof *ret_totals);
    for (uint32_t i = 0; i < used; i++)
        for (int k = 0; k < LEAT_CUDA_CLASSES_COUNT; k++) {
            const struct call_counter *c = &slots[i].of[k];
            ret_totals[k].n += atomic_load_explicit(&c->n, memory_order_relaxed);
            ret_totals[k].ns += atomic_load_explicit(&c->ticks, memory_order_relaxed);
            ret_totals[k].bytes += atomic_load_explicit(&c->bytes, memory_order_relaxed);
        }
    uint64_t ticks_passed = call_ticks() - first_ticks, ns_passed = clock_now_ns() - first_ns;
    for (int k = 0; k < LEAT_CUDA_CLASSES_COUNT; k++)
        ret_totals[k].ns = nanoseconds(ret_totals[k].ns, ticks_passed, ns_passed);
    return true;
}

void call_counters_reset(void)
{
    uint32_t used = atomic_exchange(&slots_used, 0);
    call_thread = (struct call_thread){0};
    if (used == 0) /* most forks: no page is touched */
        return;
    memset(slots, 0, used * sizeof *slots);
    if (key != (pthread_key_t)-1)
        pthread_setspecific(key, NULL);
}
