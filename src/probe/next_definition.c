/* next_definition.c: see next_definition.h. */
#include "probe/next_definition.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>

enum { OBJECTS = 64 }; /* that call CUDA; later ones share `anybody` */

struct next_object {
    uintptr_t low, bytes; /* its addresses; set before its bit in objects_ready */
    _Atomic(void *) next[PROBE_CALLS];
};

static struct next_object objects[OBJECTS];
static _Atomic uint32_t objects_taken;
static _Atomic uint64_t objects_ready; /* a bit for each */
static struct next_object anybody;     /* callers without an entry of their own */

static const char *const names[PROBE_CALLS] = {
#define X(name, ...) #name,
    PROBE_CUDA_LAUNCHES(X) PROBE_CUDA_NOTICED(X) PROBE_CUDA_CALLS(X)
#undef X
};

/* ---- objects ------------------------------------------------------------------------------ */

struct range {
    uintptr_t address, low, high;
};

static int find_range(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct range *range = context;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = (uintptr_t)(info->dlpi_addr + header->p_vaddr);
        if (header->p_type != PT_LOAD)
            continue;
        low = start < low ? start : low;
        high = start + header->p_memsz > high ? (uintptr_t)(start + header->p_memsz) : high;
    }
    if (range->address < low || range->address >= high)
        return 0;
    range->low = low;
    range->high = high;
    return 1;
}

static struct next_object *known_object(const void *caller)
{
    uint64_t ready = atomic_load_explicit(&objects_ready, memory_order_acquire);
    for (uint32_t i = 0; i < OBJECTS && ready >> i; i++)
        if (ready >> i & 1 && (uintptr_t)caller - objects[i].low < objects[i].bytes)
            return &objects[i];
    return NULL;
}

/* Code generated at run time is in no object. */
static struct next_object *add_object(const void *caller)
{
    struct range range = {.address = (uintptr_t)caller};
    uint32_t index = atomic_load(&objects_taken);
    if (index >= OBJECTS || dl_iterate_phdr(find_range, &range) != 1)
        return &anybody;
    do {
        if (index >= OBJECTS)
            return &anybody;
    } while (!atomic_compare_exchange_weak(&objects_taken, &index, index + 1));
    objects[index].low = range.low;
    objects[index].bytes = range.high - range.low;
    atomic_fetch_or_explicit(&objects_ready, (uint64_t)1 << index, memory_order_release);
    return &objects[index];
}

/* ---- definitions -------------------------------------------------------------------------- */

static int lie_together(const void *one, const void *other)
{
    Dl_info here, there;
    return dladdr(one, &here) && dladdr(other, &there) && here.dli_fbase == there.dli_fbase;
}

/* The definition in a library that is loaded already, or in one that it was linked with, except
 * ours. The handle is kept, because the result is remembered. */
static void *in_library(const char *path, const char *name)
{
    void *handle = path && *path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *found = handle ? dlsym(handle, name) : NULL;
    if (found && lie_together(found, names))
        found = NULL;
    if (handle && !found)
        dlclose(handle);
    return found;
}

static void *find_next(const char *name, const void *caller)
{
    static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12",
                                            "libcudart.so.11.0", "libcuda.so.1"};
    Dl_info info;
    void *own = dladdr(caller, &info) ? in_library(info.dli_fname, name) : NULL;
    if (own && !lie_together(own, caller))
        return own;
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        found = own;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !found; i++)
        found = in_library(libraries[i], name);
    return found;
}

void *next_definition(enum probe_call call, const void *caller)
{
    struct next_object *object = known_object(caller);
    if (!object)
        object = add_object(caller);
    void *found = atomic_load(&object->next[call]);
    if (found)
        return found;
    found = find_next(names[call], caller);
    if (found)
        atomic_store(&object->next[call], found);
    else
        dlerror(); /* the program must not see this error */
    return found;
}
