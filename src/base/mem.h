/* mem.h: allocation that a test can make fail.
 *
 * Every heap allocation of leat goes through here, so that a test can let the n-th one fail, for
 * every n, and see that nothing leaks and nothing crashes (mem_fail_at). Sizes are checked for
 * overflow. The allocator itself is libc's.
 */
#ifndef LEAT_BASE_MEM_H
#define LEAT_BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t bytes);                    /* zeroed; NULL when out of memory */
void *mem_alloc_array(size_t count, size_t size); /* zeroed; NULL also when the product overflows */
void *mem_resize(void *p, size_t count, size_t size); /* new bytes are not zeroed */
char *mem_strdup(const char *text);                   /* NULL in, NULL out */
void mem_free(void *p);                               /* takes NULL */

/* Makes sure that *items holds at least `need` elements of `size` bytes; grows by half. Returns 0
 * or -ENOMEM, in which case nothing changed. `items` is the address of a pointer variable. */
int mem_reserve(void *items, size_t *capacity, size_t need, size_t size);

/* Tests only: the n-th allocation from now on fails (1 = the next), and all after it succeed.
 * 0 switches it off. Returns how many allocations have been made since the last call. */
unsigned long mem_fail_at(unsigned long n);

#endif
