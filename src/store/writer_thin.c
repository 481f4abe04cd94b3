/* writer_thin.c: limits of the tables that grow with time, and which rows are deleted first: of
 * samples every second one, of processes those that ended long ago.
 *
 * Samples are thinned by time: one row is kept in each window of D nanoseconds for each process or
 * device, and D doubles until the table is half empty. So what is left is even over the whole run,
 * whatever its length. The last row of a process always stays: its counters are the totals.
 */
#include "store/store_internal.h"

#include <stdio.h>
#include <string.h>

struct thin {
    int eighths;        /* of limits.table_rows: fewer for rows with long texts; 0: no limit */
    const char *series; /* of samples: rows with the same value are one series */
    const char *order;  /* which rows are deleted first, also of samples that are too many series */
};

#define LIMIT(table, eighths, series, order) [STORE_##table] = {eighths, series, order}
static const struct thin tables[STORE_TABLES] = {
    LIMIT(proc_samples, 8, "pid", "rowid"),
    LIMIT(sys_samples, 8, "'all'", "rowid"),
    LIMIT(gpu_samples, 8, "gpu", "rowid"),
    LIMIT(memory_samples, 8, "rank*4096+device", "rowid"),
    LIMIT(processes, 1, NULL, "role IS 'main', ended_ns IS NULL, started_ns"),
    LIMIT(workers, 8, NULL, "last_ns"),
    LIMIT(loaders, 1, NULL, "wait_ns"),
    LIMIT(engines, 1, NULL, "wait_ns"),
    LIMIT(cuda_calls, 1, NULL, "ns"),
    LIMIT(gpu_clock, 1, NULL, "device_ns"),
    LIMIT(cuda_lines, 1, NULL, "ns"),
    LIMIT(input_parts, 1, NULL, "total_ns"),
    LIMIT(input_hist, 16, NULL, "n"),
    LIMIT(input_ready, 8, NULL, "n"),
    /* A user's line has at least the time of those it calls, and is deleted after them. */
    LIMIT(input_lines, 4, NULL, "ns, below IS NULL"),
    LIMIT(lost, 1, NULL, "n"),
};

static int64_t most_rows(const struct store_writer *w, int i)
{
    return w->limits.table_rows * tables[i].eighths / 8;
}

int thin_has_limit(enum store_table table)
{
    return tables[table].eighths > 0;
}

static int count_rows(struct store_writer *w, int i)
{
    char sql[64];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", store_tables[i].name);
    return sql_int(w->db, sql, &w->table_rows[i]);
}

static int count_dropped(struct store_writer *w, int i, int64_t rows)
{
    char why[96];
    snprintf(why, sizeof why, "%s: more than %lld rows: least significant rows dropped",
             store_tables[i].name, (long long)most_rows(w, i));
    return writer_count_lost(w, "samples", rows, why);
}

static int drop_rows(struct store_writer *w, int i, int64_t rows)
{
    const char *table = store_tables[i].name;
    const char *key = store_tables[i].key[0] ? store_tables[i].key : "rowid";
    char sql[384];
    snprintf(sql, sizeof sql,
             "DELETE FROM %s WHERE (%s) IN (SELECT %s FROM %s ORDER BY %s LIMIT %lld)", table, key,
             key, table, tables[i].order, (long long)rows);
    int rc = sql_exec(w->db, sql);
    if (rc)
        return rc;
    return i == STORE_lost ? SQLITE_OK : count_dropped(w, i, rows);
}

static int thin_samples(struct store_writer *w, int i)
{
    const char *table = store_tables[i].name, *key = tables[i].series;
    int64_t window = 0;
    char sql[512];
    snprintf(sql, sizeof sql, "SELECT coalesce((SELECT value FROM meta WHERE key='thinned.%s'),0)",
             table);
    int rc = sql_int(w->db, sql, &window);
    /* The first window is two seconds: twice the usual period of sampling. */
    window = window ? window : INT64_C(2000000000);
    while (rc == SQLITE_OK && w->table_rows[i] > most_rows(w, i) / 2 && window < INT64_C(1) << 60) {
        snprintf(sql, sizeof sql,
                 "DELETE FROM %s WHERE rowid NOT IN (SELECT min(rowid) FROM %s GROUP BY %s,"
                 "t_ns/%lld) AND rowid NOT IN (SELECT max(rowid) FROM %s GROUP BY %s)",
                 table, table, key, (long long)window, table, key);
        rc = sql_exec(w->db, sql);
        if (rc == SQLITE_OK)
            rc = count_rows(w, i);
        snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO meta VALUES('thinned.%s','%lld')", table,
                 (long long)window);
        if (rc == SQLITE_OK)
            rc = sql_exec(w->db, sql);
        window *= 2;
    }
    return rc;
}

int thin_tables(struct store_writer *w)
{
    for (int i = 0; i < STORE_TABLES; i++) {
        if (!tables[i].eighths || w->table_rows[i] <= most_rows(w, i))
            continue;
        /* Rows that replaced others were counted too: count before anything is deleted. */
        int rc = count_rows(w, i);
        if (rc == SQLITE_OK && w->table_rows[i] > most_rows(w, i) && tables[i].series)
            rc = thin_samples(w, i);
        if (rc == SQLITE_OK && w->table_rows[i] > most_rows(w, i)) {
            int64_t rows = w->table_rows[i] - most_rows(w, i) / 2;
            rc = drop_rows(w, i, rows);
            w->table_rows[i] -= rows;
        }
        if (rc)
            return rc;
    }
    return SQLITE_OK;
}
