/* mem.c: see mem.h. The counters are atomic because the collector and the loader allocate from
 * several threads; relaxed order is enough, because nothing is synchronised by them. */
#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_ulong allocations;
static atomic_ulong fail_at;

static int must_fail(void)
{
    unsigned long n = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
    return n == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *mem_alloc(size_t bytes)
{
    return must_fail() ? NULL : calloc(1, bytes ? bytes : 1);
}

void *mem_alloc_array(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return mem_alloc(bytes);
}

void *mem_resize(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || must_fail())
        return NULL;
    return realloc(p, bytes ? bytes : 1);
}

char *mem_strdup(const char *text)
{
    if (!text)
        return NULL;
    size_t bytes = strlen(text) + 1;
    char *copy = mem_alloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void mem_free(void *p)
{
    free(p);
}

int mem_reserve(void *items, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return 0;
    size_t wanted = *capacity + *capacity / 2;
    if (wanted < need)
        wanted = need;
    if (wanted < 16)
        wanted = 16;
    void *old;
    memcpy(&old, items, sizeof old);
    void *grown = mem_resize(old, wanted, size);
    if (!grown)
        return -ENOMEM;
    memcpy(items, &grown, sizeof grown);
    *capacity = wanted;
    return 0;
}

unsigned long mem_fail_at(unsigned long n)
{
    unsigned long made = atomic_exchange_explicit(&allocations, 0, memory_order_relaxed);
    atomic_store_explicit(&fail_at, n, memory_order_relaxed);
    return made;
}
