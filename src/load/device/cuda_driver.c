/* cuda_driver.c: see cuda_driver.h. */
#include "load/device/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>

static struct cuda_driver driver;
static struct leat_err why_not;
static int fit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        err_set(&why_not, -ENODEV,
                "device='cuda': no NVIDIA driver here (libcuda.so.1): run where there is a GPU, or "
                "leave device out.");
        return;
    }
#define X(name, symbol, arguments)                                                                 \
    driver.name = (int(*) arguments)dlsym(handle, symbol);                                         \
    if (!driver.name) {                                                                            \
        err_set(&why_not, -ENODEV, "device='cuda': the NVIDIA driver has no %s: it is too old.",   \
                symbol);                                                                           \
        return;                                                                                    \
    }
    CUDA_FUNCTIONS(X)
#undef X
#define X(name, symbol, arguments) driver.name = (int(*) arguments)dlsym(handle, symbol);
    CUDA_FUNCTIONS_NEWER(X)
#undef X
    int result = driver.init(0);
    if (result) {
        err_set(&why_not, -ENODEV, "device='cuda': the NVIDIA driver does not start: %s.",
                cuda_driver_text(&driver, result));
        return;
    }
    fit = 1;
}

const struct cuda_driver *cuda_driver_open(struct leat_err *err)
{
    pthread_once(&once, find_driver);
    if (fit)
        return &driver;
    if (err)
        *err = why_not;
    return NULL;
}

const char *cuda_driver_text(const struct cuda_driver *d, int result)
{
    const char *text = NULL;
    if (d->error_text(result, &text) != CU_SUCCESS || !text)
        return "an error it has no name for";
    return text;
}
