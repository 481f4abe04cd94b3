/* block.c: see block.h. */
#include "load/block.h"

#include "base/mem.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES (2u << 20)
#define PAGE_BYTES 4096u
/* Smaller blocks come from malloc: a process has about 65 000 mappings at most, and a consumer may
 * keep more batches than that. */
#define MAPPED_BYTES (256u << 10)

/* The smallest block that fills a huge page. */
static uint64_t whole_pages(uint64_t bytes)
{
    uint64_t unit = bytes >= HUGE_BYTES ? HUGE_BYTES : PAGE_BYTES;
    return (bytes + unit - 1) / unit * unit;
}

uint64_t block_cost_bytes(uint64_t bytes)
{
    return whole_pages(bytes);
}

/* Maps `bytes`, aligned to a huge page: maps one page more and unmaps both ends. */
static void *map_aligned(size_t bytes)
{
    size_t whole = bytes + HUGE_BYTES;
    uint8_t *area = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return NULL;
    size_t head = (HUGE_BYTES - (uintptr_t)area % HUGE_BYTES) % HUGE_BYTES;
    if (head)
        munmap(area, head);
    munmap(area + head + bytes, whole - head - bytes);
    madvise(area + head, bytes, MADV_HUGEPAGE); /* a hint; may fail */
    return area + head;
}

static int get(struct block *block, uint64_t bytes, int mapped)
{
    *block = (struct block){.mapped = mapped};
    if (bytes > BLOCK_MOST_BYTES)
        return -ENOMEM;
    if (block->mapped) {
        block->memory_bytes = (size_t)whole_pages(bytes);
        block->memory = map_aligned(block->memory_bytes);
    } else {
        block->memory_bytes = (size_t)bytes + BLOCK_ALIGN_BYTES;
        block->memory = mem_alloc(block->memory_bytes);
    }
    if (!block->memory)
        return -ENOMEM;
    block->start = (uint8_t *)(uintptr_t)block_round_up((uintptr_t)block->memory);
    return 0;
}

int block_get(struct block *block, uint64_t bytes)
{
    return get(block, bytes, bytes >= MAPPED_BYTES);
}

int block_map(struct block *block, uint64_t bytes)
{
    return get(block, bytes, 1);
}

void block_drop(struct block *block)
{
    if (!block->memory)
        return;
    if (!block->mapped)
        mem_free(block->memory);
    else if (!block->not_inherited_from || block->not_inherited_from == getpid())
        munmap(block->memory, block->memory_bytes);
    block->memory = NULL;
}

void block_not_inherited(struct block *block)
{
    block->not_inherited_from = getpid(); /* first: another thread may fork */
    madvise(block->memory, block->memory_bytes, MADV_DONTFORK);
}

int budget_take(struct budget *budget, uint64_t bytes)
{
    if (!budget)
        return 1;
    uint64_t used = atomic_load_explicit(&budget->used_bytes, memory_order_relaxed);
    do {
        if (bytes > budget->most_bytes || used > budget->most_bytes - bytes)
            return 0;
    } while (!atomic_compare_exchange_weak_explicit(&budget->used_bytes, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return 1;
}

void budget_give_back(struct budget *budget, uint64_t bytes)
{
    if (budget)
        atomic_fetch_sub_explicit(&budget->used_bytes, bytes, memory_order_relaxed);
}
