/* text_parts.h: the parts of the text report below its head, internal to this room. Each appends to
 * `out`. */
#ifndef LEAT_REPORT_TEXT_PARTS_H
#define LEAT_REPORT_TEXT_PARTS_H

#include "base/json.h"
#include "base/str.h"

void text_input(const json_t *summary, struct str *out);
/* The cause in one sentence; NULL when unknown. */
const char *text_cause_meaning(const char *cause);
void text_workers(const json_t *summary, int colour, struct str *out);
void text_cuda(const json_t *summary, struct str *out);
void text_gpu(const json_t *summary, struct str *out);
void text_clock(const json_t *summary, struct str *out);
void text_memory_stats(const json_t *summary, struct str *line);
void text_tables(const json_t *summary, int colour, struct str *out);
void text_not_seen(const json_t *summary, int colour, struct str *out);
void text_next_command(const json_t *summary, struct str *out);

#endif
