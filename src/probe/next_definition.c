/* next_definition.c: see next_definition.h. */
#include "probe/next_definition.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>

enum {
    OBJECTS = 16
}; /* calling libraries outside the global scope; later ones are looked up anew */

struct object {
    uintptr_t low, high; /* set before object_count counts it */
    _Atomic(void *) next[PROBE_CALLS];
};

_Atomic(void *) next_for_all[PROBE_CALLS];

static struct object objects[OBJECTS];
static _Atomic uint32_t objects_taken, objects_ready; /* ready: bit for each */

static const char *const names[PROBE_CALLS] = {
#define X(name, parameters, arguments, class, bytes, after) #name,
    PROBE_CUDA_CALLS(X)
#undef X
};

static struct object *known_object(const void *caller)
{
    uint32_t ready = atomic_load_explicit(&objects_ready, memory_order_acquire);
    for (uint32_t i = 0; i < OBJECTS && ready >> i; i++)
        if (ready >> i & 1 && (uintptr_t)caller >= objects[i].low &&
            (uintptr_t)caller < objects[i].high)
            return &objects[i];
    return NULL;
}

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

static struct object *add_object(const void *caller)
{
    struct range range = {.address = (uintptr_t)caller};
    if (dl_iterate_phdr(find_range, &range) != 1)
        return NULL;
    uint32_t index = atomic_load(&objects_taken);
    do {
        if (index >= OBJECTS)
            return NULL;
    } while (!atomic_compare_exchange_weak(&objects_taken, &index, index + 1));
    objects[index].low = range.low;
    objects[index].high = range.high;
    atomic_fetch_or_explicit(&objects_ready, 1u << index, memory_order_release);
    return &objects[index];
}

static bool is_ours(void *definition)
{
    Dl_info here, there;
    return dladdr((void *)names, &here) && dladdr(definition, &there) &&
           here.dli_fbase == there.dli_fbase;
}

/* The definition in a library that is loaded already, or in what it was linked with. The handle is
 * kept: what was found must not go away while it is remembered. */
static void *in_library(const char *path, const char *name)
{
    void *handle = path && *path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *found = handle ? dlsym(handle, name) : NULL;
    if (found && is_ours(found))
        found = NULL;
    if (handle && !found)
        dlclose(handle);
    return found;
}

/* Of a caller outside the global scope. Last, any CUDA that the process has loaded: a caller that
 * was not linked with it got it by whoever loaded both. */
static void *for_caller(const char *name, const void *caller)
{
    static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12",
                                            "libcudart.so.11.0", "libcuda.so.1"};
    Dl_info info;
    void *found = NULL;
    if (dladdr(caller, &info))
        found = in_library(info.dli_fname, name);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !found; i++)
        found = in_library(libraries[i], name);
    return found;
}

void *next_definition_find(enum probe_call call, const void *caller)
{
    struct object *object = known_object(caller);
    void *found = object ? atomic_load(&object->next[call]) : NULL;
    if (found)
        return found;
    found = dlsym(RTLD_NEXT, names[call]);
    if (found) {
        atomic_store(&next_for_all[call], found);
        return found;
    }
    found = for_caller(names[call], caller);
    if (found && !object)
        object = add_object(caller);
    if (found && object)
        atomic_store(&object->next[call], found);
    dlerror(); /* what was not found is nobody else's error */
    return found;
}
