/* call_entries.c: see call_entries.h. What is read here was written by the linker and has been read
 * by the loader before: it is not foreign. */
#include "probe/call_entries.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { CALL_ENTRY = R_X86_64_JUMP_SLOT, ADDRESS_ENTRY = R_X86_64_GLOB_DAT };
#elif defined(__aarch64__)
enum { CALL_ENTRY = R_AARCH64_JUMP_SLOT, ADDRESS_ENTRY = R_AARCH64_GLOB_DAT };
#else
enum { CALL_ENTRY = -1, ADDRESS_ENTRY = -1 }; /* none is found */
#endif

struct search {
    uintptr_t caller;
    const char *name;
    const void *function;
    struct call_entries found;
};

struct tables {
    const ElfW(Sym) * symbols;
    const char *texts;
    const ElfW(Rela) * relocations[2];
    size_t counts[2];
};

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* Addresses in it are those of this process, or still of the file. */
static const void *pointer(const struct dl_phdr_info *info, const ElfW(Dyn) * entry)
{
    uintptr_t at = (uintptr_t)entry->d_un.d_ptr;
    return (const void *)(at < info->dlpi_addr ? at + info->dlpi_addr : at);
}

static struct tables read_dynamic(const struct dl_phdr_info *info, const ElfW(Dyn) * entry)
{
    struct tables t = {0};
    for (; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB: t.symbols = pointer(info, entry); break;
        case DT_STRTAB: t.texts = pointer(info, entry); break;
        case DT_RELA: t.relocations[0] = pointer(info, entry); break;
        case DT_RELASZ: t.counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
        case DT_JMPREL: t.relocations[1] = pointer(info, entry); break;
        case DT_PLTRELSZ: t.counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
        default: break;
        }
    }
    return t;
}

static void search_tables(const struct dl_phdr_info *info, const struct tables *t, struct search *s)
{
    struct call_entries *found = &s->found;
    for (int k = 0; k < 2 && t->symbols && t->texts; k++)
        for (size_t i = 0; t->relocations[k] && i < t->counts[k]; i++) {
            const ElfW(Rela) *r = &t->relocations[k][i];
            int kind = (int)ELF64_R_TYPE(r->r_info);
            if (kind != CALL_ENTRY && kind != ADDRESS_ENTRY)
                continue;
            const ElfW(Sym) *symbol = &t->symbols[ELF64_R_SYM(r->r_info)];
            _Atomic uintptr_t *at = (_Atomic uintptr_t *)(info->dlpi_addr + r->r_offset);
            if (strcmp(t->texts + symbol->st_name, s->name) == 0 && found->count < CALL_ENTRIES &&
                atomic_load(at) == (uintptr_t)s->function)
                found->at[found->count++] = at;
        }
}

static int search_object(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct search *s = context;
    const ElfW(Dyn) *dynamic = NULL;
    int within = 0;
    struct call_entries *found = &s->found;
    *found = (struct call_entries){0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t start = (uintptr_t)(info->dlpi_addr + h->p_vaddr), page = page_bytes();
        if (h->p_type == PT_LOAD)
            within |= s->caller - start < h->p_memsz;
        else if (h->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)start;
        else if (h->p_type == PT_GNU_RELRO) { /* whole pages, as the loader does it */
            found->fixed_low = start / page * page;
            found->fixed_high = (start + h->p_memsz) / page * page;
        }
    }
    if (!within)
        return 0;
    if (dynamic) {
        struct tables t = read_dynamic(info, dynamic);
        search_tables(info, &t, s);
    }
    return 1;
}

/* The program itself has no name, and never goes. */
static int keep_loaded(const void *address)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return 0;
    if (!*map->l_name || dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE))
        return 1;
    dlerror(); /* nobody else's */
    return 0;
}

struct call_entries call_entries_find(const void *caller, const char *name, const void *function)
{
    struct search s = {.caller = (uintptr_t)caller, .name = name, .function = function};
    if (keep_loaded(caller) && dl_iterate_phdr(search_object, &s) == 1)
        return s.found;
    return (struct call_entries){0};
}

int call_entries_point(const struct call_entries *entries, const void *function)
{
    uintptr_t bytes = page_bytes();
    int result = 0;
    for (int i = 0; i < entries->count; i++) {
        _Atomic uintptr_t *at = entries->at[i];
        uintptr_t page = (uintptr_t)at / bytes * bytes;
        int fixed = page >= entries->fixed_low && page < entries->fixed_high;
        if (fixed && mprotect((void *)page, bytes, PROT_READ | PROT_WRITE) != 0) {
            result = -1;
            continue;
        }
        atomic_store(at, (uintptr_t)function);
        if (fixed)
            mprotect((void *)page, bytes, PROT_READ);
    }
    return result;
}
