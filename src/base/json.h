/* json.h: jansson, with bounds. Everything leat reads as JSON is foreign: a summary file may be
 * cut, of another tool, or huge. These helpers never crash on a missing or wrongly typed member:
 * they return the default. */
#ifndef LEAT_BASE_JSON_H
#define LEAT_BASE_JSON_H

#include "base/err.h"

#include <jansson.h>

/* Reads a JSON object from a file of at most `most_bytes`. The error gives the position. */
int json_read_file(const char *path, size_t most_bytes, json_t **ret_object, struct leat_err *err);
/* Parses untrusted text into an object; nesting is bounded by jansson (2048 levels). */
int json_parse(const char *text, size_t bytes, json_t **ret_object, struct leat_err *err);
/* JSON as leat writes it: indented, numbers with up to 12 significant digits. NULL when out of
 * memory. Allocated by jansson: release it with free(). */
char *json_to_text(const json_t *value);
/* The same on one line. */
char *json_to_line(const json_t *value);
/* The indented form into a file: to `path`.tmp and renamed, so that readers see the old file or the
 * new one.
 */
int json_write_file(const char *path, const json_t *value, struct leat_err *err);

/* Members by path, "step_time.phases.input.share"; NULL or the default when absent or of another
 * type. */
const json_t *json_find(const json_t *object, const char *path);
const char *json_find_text(const json_t *object, const char *path, const char *otherwise);
double json_find_number(const json_t *object, const char *path, double otherwise);

/* NaN and infinity are not valid in JSON: they become null. */
json_t *json_number_or_null(double value);
json_t *json_text_or_null(const char *text);

#endif
