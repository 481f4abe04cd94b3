/* nvml.h: functions of nvml.c that only its tests use. */
#ifndef LEAT_OBSERVE_NVML_H
#define LEAT_OBSERVE_NVML_H

#include "observe/observe.h"

/* nvml_open with another library and another /proc. */
int nvml_open_library(const char *library, const char *root, struct nvml **ret_nvml,
                      struct leat_err *err);

#endif
