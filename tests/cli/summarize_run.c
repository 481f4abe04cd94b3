/* summarize_run.c: for tests: what `leat run` does at the end, on a folder that has a run.db.
 * Writes final_summary.json and .txt beside it. */
#include "base/mem.h"
#include "base/path.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct leat_err err = {""};
    struct store_reader *reader = NULL;
    struct str text = {0};
    json_t *summary = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: summarize_run FOLDER\n");
        return 2;
    }
    char *database = path_join(argv[1], "run.db", NULL);
    char *json_path = path_join(argv[1], "final_summary.json", NULL);
    char *text_path = path_join(argv[1], "final_summary.txt", NULL);
    int result = store_reader_open(database, &reader, &err);
    if (result == 0)
        result = summary_from_database(reader, &summary, &err);
    if (result == 0)
        result = json_write_file(json_path, summary, &err);
    if (result == 0) {
        report_text(summary, 0, &text);
        result = path_write_file(text_path, str_text(&text), text.length, &err);
    }
    if (result < 0)
        fprintf(stderr, "%s: %s\n", argv[1], err.text);
    str_done(&text);
    json_decref(summary);
    store_reader_close(reader);
    mem_free(database);
    mem_free(json_path);
    mem_free(text_path);
    return result < 0;
}
