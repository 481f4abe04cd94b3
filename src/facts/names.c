/* names.c: the lists of names.h. Each ends with "", which stands for every other text. */
#include "facts/names.h"

#include "record/probe_abi.h"

#include <leat/recorder.h>

#include <string.h>

#define X(name, text) text,
const char *const loader_use_names[] = {LOADER_USES(X) ""};
const char *const process_role_names[] = {PROCESS_ROLES(X) ""};
const char *const engine_order_names[] = {ENGINE_ORDERS(X) ""};
const char *const engine_source_names[] = {ENGINE_SOURCES(X) ""};
const char *const cuda_line_kind_names[] = {CUDA_LINE_KINDS(X) ""};
const char *const span_kind_names[] = {SPAN_KINDS(X) ""};
const char *const run_end_names[] = {RUN_ENDS(X) ""};
const char *const part_names[] = {LEAT_PARTS(X) ""};
const char *const cuda_class_names[] = {LEAT_CUDA_CLASSES(X) ""};
const char *const clock_phase_names[] = {LEAT_CLOCK_PHASES(X) ""};
#undef X

int name_index(const char *const *names, const char *text)
{
    int i = 0;
    while (names[i][0] && (!text || strcmp(names[i], text) != 0))
        i++;
    return i;
}
