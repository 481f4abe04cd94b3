/* time_report.c: how long a user waits between the end of a run and its report.
 *
 *     time_report RUN.DB FOLDER
 *
 * Does what `leat run` does when the training has ended: reads the database, diagnoses, builds the
 * summary, writes final_summary.json and final_summary.txt into FOLDER. Prints milliseconds, by
 * part and in all.
 */
#include "base/clock.h"
#include "base/path.h"
#include "base/mem.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

static double ms_since(uint64_t *mark)
{
    uint64_t now = clock_now_ns();
    double ms = (double)(now - *mark) / 1e6;
    *mark = now;
    return ms;
}

static int write_report(const json_t *summary, const char *folder, struct leat_err *err)
{
    struct str text = {0};
    char *json_path = path_join(folder, "final_summary.json", NULL);
    char *text_path = path_join(folder, "final_summary.txt", NULL);
    int code = json_path && text_path ? 0 : -ENOMEM;
    if (code == 0)
        code = json_write_file(json_path, summary, err);
    report_text(summary, 0, &text);
    if (code == 0)
        code = path_write_file(text_path, str_text(&text), text.length, err);
    str_done(&text);
    mem_free(json_path);
    mem_free(text_path);
    return code;
}

int main(int argc, char **argv)
{
    struct store_reader *reader = NULL;
    struct facts *facts = NULL;
    struct findings findings = {0};
    json_t *summary = NULL;
    struct leat_err err = {""};
    if (argc != 3) {
        fprintf(stderr, "usage: time_report RUN.DB FOLDER\n");
        return 2;
    }
    uint64_t start = clock_now_ns(), mark = start;
    double load = 0, decide = 0, report = 0;
    int code = store_reader_open(argv[1], &reader, &err);
    if (code == 0)
        code = facts_load(reader, &facts, &err);
    load = ms_since(&mark);
    if (code == 0)
        code = diagnose(facts, &findings, &err);
    decide = ms_since(&mark);
    if (code == 0)
        code = summary_build(facts, &findings, &summary, &err);
    if (code == 0)
        code = write_report(summary, argv[2], &err);
    report = ms_since(&mark);
    double all = (double)(mark - start) / 1e6;
    if (code)
        fprintf(stderr, "time_report: %s\n", err.text[0] ? err.text : err_text(code));
    else
        printf("load_ms %.1f diagnose_ms %.1f report_ms %.1f total_ms %.1f\n", load, decide, report,
               all);
    json_decref(summary);
    findings_done(&findings);
    facts_free(facts);
    store_reader_close(reader);
    return code ? 1 : 0;
}
