/* fake_hdf5.c: a libhdf5 that misbehaves, as the true one may on a damaged file. LEAT_FAKE_HDF5
 * says how. Everything up to H5Fopen and after it does nothing. */
#include "load/source/hdf5/hdf5_library.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define X(type, name, arguments) type name arguments;
HDF5_FUNCTIONS(X)
#undef X

static void misbehave(void)
{
    const char *how = getenv("LEAT_FAKE_HDF5");
    if (!how || strcmp(how, "crash") == 0)
        raise(SIGSEGV);
    if (strcmp(how, "hang") == 0)
        for (;;)
            pause();
    if (strcmp(how, "exit") == 0)
        _exit(3);
    if (strcmp(how, "leave") == 0)
        _exit(0);
    if (strcmp(how, "memory") == 0)
        for (;;) /* ends where the process may not have more; mapped, never written to */
            if (mmap(NULL, 64u << 20, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
                abort();
    for (int fd = 3; fd < 256; fd++) /* "flood", "garbage": into whatever pipe there is */
        for (int i = 0; i < (strcmp(how, "flood") == 0 ? 1000 : 1); i++) {
            static char bytes[65536];
            memset(bytes, 'x', sizeof bytes);
            if (write(fd, bytes, sizeof bytes) < 0)
                break;
        }
    _exit(0);
}

#define X(type, name, arguments)                                                                   \
    __attribute__((visibility("default"))) type name arguments                                     \
    {                                                                                              \
        if (strcmp(#name, "H5Fopen") == 0)                                                         \
            misbehave();                                                                           \
        return (type)0;                                                                            \
    }
HDF5_FUNCTIONS(X)
#undef X
