/* report.h: the findings as JSON and as text. It measures and decides nothing.
 *
 * The text report is made from the summary (a JSON object, docs/final_summary.schema.json) alone,
 * so `leat view` prints the same as `leat run` did.
 */
#ifndef LEAT_REPORT_REPORT_H
#define LEAT_REPORT_REPORT_H

#include "base/json.h"
#include "base/str.h"
#include "diagnose/diagnose.h"

#define SUMMARY_SCHEMA     "1.0"
#define SUMMARY_MOST_BYTES (64u << 20) /* a summary of 1000 ranks has about 2 MB */

/* facts + findings -> the summary. The caller owns *ret_summary. */
int summary_build(const struct facts *facts, const struct findings *findings, json_t **ret_summary,
                  struct leat_err *err);

/* From a run database to its summary. The caller owns *ret_summary. */
int summary_from_database(struct store_reader *reader, json_t **ret_summary, struct leat_err *err);

/* Reads and checks a final_summary.json; a file of another tool or version, or a cut one, is
 * refused with a sentence. `path` may be the file, a run's folder, or the name of a run in ./logs;
 * if there is none, the sentence names the runs that exist. A run without the file (leat was
 * killed) is diagnosed from its run.db. */
int summary_read(const char *path, json_t **ret_summary, struct leat_err *err);

/* The same over bytes: what summary_read does once it has the file. Untrusted input; the sentence
 * has no file name in it ("it is JSON, but ..."). */
int summary_parse(const char *text, size_t bytes, json_t **ret_summary, struct leat_err *err);

/* Where summary_read finds the file of `path`: its final_summary.json, or the run.db of a run that
 * has none. The caller owns *ret_file. */
int summary_locate(const char *path, char **ret_file, struct leat_err *err);

/* The summary that was written last below `logs_dir`. The caller owns *ret_file. */
int summary_newest(const char *logs_dir, char **ret_file, struct leat_err *err);

/* The text report. First screen (24 lines): verdict, why, next; then the sections. */
void report_text(const json_t *summary, int colour, struct str *out);

/* Two runs, each a folder (or its final_summary.json); per-step samples come from run.db beside it
 * where it is there. `threshold` is a ratio (0.03). The result is an object with "verdict" (kind,
 * label, summary) and the rows; compare_text prints it. */
int compare_runs(const char *before, const char *after, double threshold, json_t **ret_result,
                 struct leat_err *err);
void compare_text(const json_t *result, int colour, struct str *out);

#endif
