/* host_memory.h: is an address pinned host memory, pageable host memory, or the device's?
 *
 * Ranges that the program pins are noted as they pass by. Of any other address the driver is asked
 * (cuPointerGetAttribute, which unlike its sister of the runtime leaves no error behind), once for
 * each page of it; the answer is thrown away when something was freed, and after 255 uses.
 *
 * What goes wrong goes wrong softly: a range that found no room in the table is asked about, and
 * where the driver cannot be asked, memory is taken for pageable.
 */
#ifndef LEAT_PROBE_HOST_MEMORY_H
#define LEAT_PROBE_HOST_MEMORY_H

#include <stddef.h>

enum host_memory { HOST_PAGEABLE, HOST_PINNED, HOST_NOT };

enum host_memory host_memory_of(const void *address);
void host_memory_add(const void *start, size_t bytes);
void host_memory_remove(const void *start);
void host_memory_doubt(void);  /* something was freed: answers of the driver may be out of date */
void host_memory_forget(void); /* all of it, in the child of a fork */

#endif
