/* writer_thin.c: limits of the tables that grow with time. Written by hand for each table, since
 * what may go differs: of samples every second one, of spans the shortest, of processes those that
 * ended long ago.
 *
 * Samples are thinned by time: one row is kept in each window of D nanoseconds for each process or
 * device, and D doubles until the table is half empty. So what is left is even over the whole run,
 * whatever its length. The last row of a process always stays: its counters are the totals.
 */
#include "store/store_internal.h"

#include <stdio.h>
#include <string.h>

struct thin {
    const char *table;
    const char *key;  /* samples: one series each; NULL: not a table of samples */
    const char *drop; /* what to delete otherwise; %lld is the number of rows to go */
    int eighths;      /* of table_rows: rows with long texts get fewer, short ones more */
};

static const struct thin tables[THIN_TABLES] = {
    [THIN_PROC] = {"proc_samples",   "pid",              NULL,                                       8 },
    [THIN_SYS] = {"sys_samples",    "'all'",            NULL,                                       8 },
    [THIN_GPU] = {"gpu_samples",    "gpu",              NULL,                                       8 },
    [THIN_MEMORY] = {"memory_samples", "rank*4096+device", NULL,                                       8 },
    [THIN_SPANS] = {"spans",          NULL,
                   "DELETE FROM spans WHERE rowid IN "
                    "(SELECT rowid FROM spans ORDER BY end_ns-start_ns LIMIT %lld)",                 8 },
    [THIN_PROCESSES] = {"processes",      NULL,
                   "DELETE FROM processes WHERE pid IN (SELECT pid FROM processes ORDER BY "
                        "role IS 'main', ended_ns IS NULL, started_ns LIMIT %lld)",                  1 },
    [THIN_WORKERS] = {"workers",        NULL,
                   "DELETE FROM workers WHERE pid IN "
                      "(SELECT pid FROM workers ORDER BY last_ns LIMIT %lld)",                       8 },
    [THIN_LOADERS] = {"loaders",        NULL,
                   "DELETE FROM loaders WHERE (pid,loader) IN "
                      "(SELECT pid,loader FROM loaders ORDER BY wait_ns LIMIT %lld)",                1 },
    [THIN_ENGINES] = {"engines",        NULL,
                   "DELETE FROM engines WHERE (pid,loader) IN "
                      "(SELECT pid,loader FROM engines ORDER BY wait_ns LIMIT %lld)",                1 },
    [THIN_CUDA] = {"cuda_calls",     NULL,
                   "DELETE FROM cuda_calls WHERE (pid,span,class) IN "
                   "(SELECT pid,span,class FROM cuda_calls ORDER BY ns LIMIT %lld)",                 1 },
    [THIN_CLOCK] = {"gpu_clock",      NULL,
                   "DELETE FROM gpu_clock WHERE (pid,phase) IN "
                    "(SELECT pid,phase FROM gpu_clock ORDER BY device_ns LIMIT %lld)",               1 },
    [THIN_CUDA_LINES] = {"cuda_lines",     NULL,
                   "DELETE FROM cuda_lines WHERE (pid,file,line,function,class) IN (SELECT "
                         "pid,file,line,function,class FROM cuda_lines ORDER BY ns LIMIT %lld)",     1 },
    [THIN_INPUT_PARTS] = {"input_parts",    NULL,
                   "DELETE FROM input_parts WHERE (pid,loader,worker,part) IN (SELECT "
                          "pid,loader,worker,part FROM input_parts ORDER BY total_ns LIMIT %lld)",   1 },
    [THIN_INPUT_HIST] = {"input_hist",     NULL,
                   "DELETE FROM input_hist WHERE (pid,loader,worker,part,bin) IN (SELECT "
                         "pid,loader,worker,part,bin FROM input_hist ORDER BY n LIMIT %lld)",        16},
 /* A user's line has at least the time of those it calls, and goes after them. */
    [THIN_INPUT_LINES] = {"input_lines",    NULL,
                   "DELETE FROM input_lines WHERE (pid,loader,worker,id) IN (SELECT "
                          "pid,loader,worker,id FROM input_lines ORDER BY ns, below IS NULL "
                          "LIMIT %lld)",                                                             4 },
    [THIN_LOST] = {"lost",           NULL,
                   "DELETE FROM lost WHERE rowid IN (SELECT rowid FROM lost ORDER BY n LIMIT %lld)", 1 },
};

static int64_t most_rows(const struct store_writer *w, int i)
{
    return w->limits.table_rows * tables[i].eighths / 8;
}

int thin_find(const char *table)
{
    for (int i = 0; i < THIN_TABLES; i++)
        if (!strcmp(tables[i].table, table))
            return i;
    return -1;
}

static int count_rows(struct store_writer *w, int i)
{
    char sql[64];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", tables[i].table);
    return sql_int(w->db, sql, &w->table_rows[i]);
}

/* One row a table, however often it happens. */
static int tell_lost(struct store_writer *w, int i, int64_t rows)
{
    char why[96], sql[384];
    snprintf(why, sizeof why, "%s: more than %lld rows, the least telling were left out",
             tables[i].table, (long long)most_rows(w, i));
    snprintf(sql, sizeof sql,
             "UPDATE lost SET n=n+%lld WHERE why='%s';"
             "INSERT INTO lost SELECT 'samples',%lld,'%s' WHERE changes()=0;",
             (long long)rows, why, (long long)rows, why);
    return sql_exec(w->db, sql);
}

static int drop_rows(struct store_writer *w, int i, int64_t rows)
{
    char sql[256];
    if (tables[i].drop)
        snprintf(sql, sizeof sql, tables[i].drop, (long long)rows);
    else
        snprintf(sql, sizeof sql,
                 "DELETE FROM %s WHERE rowid IN (SELECT rowid FROM %s ORDER BY rowid LIMIT %lld)",
                 tables[i].table, tables[i].table, (long long)rows);
    int rc = sql_exec(w->db, sql);
    if (rc)
        return rc;
    /* The longest spans and the totals say enough of those that went; more processes or series
     * than the table has rows are a loss, and are told. */
    return i == THIN_SPANS || i == THIN_LOST ? SQLITE_OK : tell_lost(w, i, rows);
}

static int thin_samples(struct store_writer *w, int i)
{
    const char *table = tables[i].table, *key = tables[i].key;
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
    for (int i = 0; i < THIN_TABLES; i++) {
        if (w->table_rows[i] <= most_rows(w, i))
            continue;
        /* Rows that replaced others were counted too: look before anything is deleted. */
        int rc = count_rows(w, i);
        if (rc == SQLITE_OK && w->table_rows[i] > most_rows(w, i) && tables[i].key)
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
