/* summary_parts.h: the parts of the summary, internal to this room. Each function returns a new
 * JSON value, or NULL when out of memory. json_pack returns NULL if given NULL, so summary_build
 * checks once, at its end. */
#ifndef LEAT_REPORT_SUMMARY_PARTS_H
#define LEAT_REPORT_SUMMARY_PARTS_H

#include "base/json.h"
#include "diagnose/diagnose.h"
#include "facts/device_time.h"
#include "facts/loader_view.h"

json_t *summary_step_time(const struct facts *facts); /* summary_steps.c */
json_t *summary_input(const struct facts *facts);     /* summary_input.c */
json_t *summary_memory(const struct facts *facts);    /* summary_system.c, as the next two */
json_t *summary_system(const struct facts *facts);
json_t *summary_processes(const struct facts *facts);
json_t *summary_cuda(const struct facts *facts);  /* summary_cuda.c: a part of system */
json_t *summary_clock(const struct facts *facts); /* summary_clock.c: another */

/* Absent is null, never 0: -1 for an integer, NaN for a number, NULL or "" for a text. Bytes that
 * are not UTF-8 (of a path, of an exception) become '?'. */
json_t *summary_integer(int64_t value);
json_t *summary_text(const char *text);
json_t *summary_flag(int64_t value); /* 1 true, 0 false, else null */

/* The loader that feeds the steps, of a parsed summary: summary_input.c puts it first. NULL when
 * there is none. An evaluation's loader only where there is no other. */
const json_t *summary_main_loader(const json_t *summary); /* summary_read.c */

#endif
