/* host_memory.h: whether an address is pinned host memory, pageable host memory or device memory.
 *
 * Ranges that the program pins are entered into a table. For other addresses the driver is asked
 * (cuPointerGetAttribute, which sets no error in the runtime), once for each page; the answer is
 * dropped when memory was freed, and after 255 uses.
 *
 * Failures degrade: a range that does not fit into the table is asked about, and where the driver
 * cannot be asked, memory counts as pageable.
 */
#ifndef LEAT_PROBE_HOST_MEMORY_H
#define LEAT_PROBE_HOST_MEMORY_H

#include <stddef.h>

enum host_memory { HOST_PAGEABLE, HOST_PINNED, HOST_NOT };

enum host_memory host_memory_of(const void *address);
void host_memory_add(const void *start, size_t bytes);
void host_memory_remove(const void *start);
void host_memory_drop_answers(void); /* memory was freed: the driver's answers may be out of date */
void host_memory_reset(void);        /* in a forked child: forget everything */

#endif
