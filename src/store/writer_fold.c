/* writer_fold.c: the oldest steps become intervals and histograms.
 *
 *     step 0 ........ 1023 │ 1024 ................. frontier │ frontier ........... newest
 *     never folded         │ intervals in step_folds,        │ row by row,
 *     (warm-up)            │ outliers and marked steps whole │ step_rows in all
 *
 * Each flush folds about as many of the oldest steps as came in, taking them from the rank that
 * has most rows, in batches: the work a flush is small, and the newest rows are always there. An
 * interval is `fold_steps` step numbers long, on a multiple of it. When there are too many
 * intervals, their length doubles and adjacent ones are merged, so the resolution is even over the
 * run and the count is bounded however long it lasts.
 *
 * Left whole is a step that is marked (the start of an epoch, a checkpoint, a compilation, after an
 * evaluation, an exception), and one that took more than twice the median of its batch and is among
 * its slowest 1 %. Intermittent stalls are judged on the slowest 1 %, which must be five times the
 * mean to matter, and the report names those steps: none of them may be folded. Below twice the
 * median the histogram is enough. When even those become too many, the shorter half of them goes
 * into the intervals they lie in.
 *
 * Nothing disappears: the rows of `steps` and the n of `step_folds` add up to all steps, and the
 * sums of their times to all time.
 */
#include "store/store_internal.h"

#include "base/mem.h"
#include "base/stats.h"

#include <assert.h>
#include <string.h>

#define MARKED                                                                                     \
    (STEP_EPOCH_START | STEP_COMPILE | STEP_CHECKPOINT | STEP_AFTER_EVAL | STEP_EXCEPTION)

/* ---- state ------------------------------------------------------------------------------- */

int fold_state_copy(const struct fold_state *from, struct fold_state *ret_copy)
{
    struct fold_state copy = *from;
    copy.ranks = mem_alloc_array(from->rank_count + 1, sizeof *copy.ranks);
    if (!copy.ranks)
        return SQLITE_NOMEM;
    if (from->rank_count)
        memcpy(copy.ranks, from->ranks, from->rank_count * sizeof *copy.ranks);
    copy.rank_capacity = from->rank_count + 1;
    *ret_copy = copy;
    return SQLITE_OK;
}

void fold_state_done(struct fold_state *state)
{
    mem_free(state->ranks);
    state->ranks = NULL;
    state->rank_count = state->rank_capacity = 0;
}

static struct rank_state *find_rank(struct store_writer *w, int32_t rank)
{
    struct fold_state *f = &w->fold;
    for (size_t i = 0; i < f->rank_count; i++)
        if (f->ranks[i].rank == rank)
            return &f->ranks[i];
    return NULL;
}

int fold_note_step(struct store_writer *w, int32_t rank, int64_t step)
{
    struct fold_state *f = &w->fold;
    struct rank_state *r = find_rank(w, rank);
    if (!r) {
        if (mem_reserve(&f->ranks, &f->rank_capacity, f->rank_count + 1, sizeof *f->ranks))
            return SQLITE_NOMEM;
        r = &f->ranks[f->rank_count++];
        *r = (struct rank_state){.rank = rank, .frontier = w->limits.first_steps};
    }
    if (step >= r->frontier) {
        r->fresh++;
        f->fresh++;
    } else if (step >= w->limits.first_steps) {
        r->kept++;
        f->kept++;
    }
    return SQLITE_OK;
}

/* ---- writing intervals and histograms ---------------------------------------------------- */

/* The sums of a fold: wall, phases, samples, micro_steps, records. They are adjacent columns of
 * steps and in one of step_folds. */
enum { SUMS = PHASES + 4 };
#define SUMS_OF(type, row) ((char *)(row) + offsetof(struct type, wall_ns))
#define CHECK_SUMS(type)                                                                           \
    static_assert(offsetof(struct type, records) - offsetof(struct type, wall_ns) ==               \
                      (SUMS - 1) * sizeof(int64_t),                                                \
                  #type ": the columns from wall_ns to records are not the sums")
CHECK_SUMS(step_row);
CHECK_SUMS(step_fold_row);

static void interval_start(struct step_fold_row *v, int32_t rank, int64_t first)
{
    *v = step_fold_row_nulls;
    v->rank = rank;
    v->first_step = first;
    v->n = v->end_ns = v->flags = 0;
}

static void interval_add(struct store_writer *w, struct step_fold_row *v, struct step_row *step)
{
    int64_t sums[SUMS], add[SUMS];
    memcpy(sums, SUMS_OF(step_fold_row, v), sizeof sums);
    memcpy(add, SUMS_OF(step_row, step), sizeof add);
    v->n++;
    v->end_ns = step->end_ns > v->end_ns ? step->end_ns : v->end_ns;
    v->flags |= step->flags;
    for (int i = 0; i < SUMS; i++) {
        if (add[i] == STORE_NULL)
            continue;
        sums[i] = sums[i] == STORE_NULL ? add[i] : sums[i] + add[i];
        if (i < HIST_KINDS)
            w->hist[i][duration_bucket_of((uint64_t)add[i])]++;
    }
    memcpy(SUMS_OF(step_fold_row, v), sums, sizeof sums);
}

char *fold_write_sql(void)
{
    const struct store_table_info *t = &store_tables[STORE_step_folds];
    struct str s = {0};
    str_add(&s, "INSERT INTO step_folds VALUES(");
    for (int i = 0; i < t->column_count; i++)
        str_add(&s, i ? ",?" : "?");
    str_add(&s, ") ON CONFLICT(rank,first_step) DO UPDATE SET end_ns=max(end_ns,excluded.end_ns),"
                "flags=flags|excluded.flags");
    for (int i = 2; i < t->column_count; i++) { /* behind the key */
        const char *c = t->columns[i].name;
        if (strcmp(c, "end_ns") != 0 && strcmp(c, "flags") != 0)
            str_addf(&s, ",%s=coalesce(%s+excluded.%s,%s,excluded.%s)", c, c, c, c, c);
    }
    return sql_take(&s);
}

static char *merge_sql(void)
{
    const struct store_table_info *t = &store_tables[STORE_step_folds];
    struct str s = {0};
    str_add(&s, "CREATE TEMP TABLE merged AS SELECT rank,first_step/?1*?1");
    for (int i = 2; i < t->column_count; i++) {
        const char *c = t->columns[i].name;
        if (strcmp(c, "end_ns") == 0)
            str_addf(&s, ",max(%s)", c);
        else if (strcmp(c, "flags") == 0) /* two rows at most: min and max are all of them */
            str_addf(&s, ",min(%s)|max(%s)", c, c);
        else
            str_addf(&s, ",sum(%s)", c);
    }
    str_add(&s, " FROM step_folds GROUP BY 1,2");
    return sql_take(&s);
}

static int interval_write(struct store_writer *w, const struct step_fold_row *v)
{
    int rc = writer_prepare(w, SQL_FOLD_WRITE);
    if (rc || v->n == 0)
        return rc;
    table_bind(w->sql[SQL_FOLD_WRITE], STORE_step_folds, v);
    w->fold.folds++;
    return sql_run(w->sql[SQL_FOLD_WRITE]);
}

static int hist_write(struct store_writer *w, int32_t rank)
{
    int rc = writer_prepare(w, SQL_HIST_WRITE);
    sqlite3_stmt *s = w->sql[SQL_HIST_WRITE];
    for (int kind = 0; kind < HIST_KINDS && rc == SQLITE_OK; kind++) {
        const char *phase = kind ? leat_phase_names[kind - 1] : "wall";
        for (int bin = 0; bin < DURATION_BUCKETS && rc == SQLITE_OK; bin++) {
            if (!w->hist[kind][bin])
                continue;
            sqlite3_bind_int64(s, 1, rank);
            sqlite3_bind_text(s, 2, phase, -1, SQLITE_STATIC);
            sqlite3_bind_int64(s, 3, bin);
            sqlite3_bind_int64(s, 4, w->hist[kind][bin]);
            rc = sql_run(s);
        }
    }
    return rc;
}

/* Binds the range of ids and the two conditions that SQL_FOLD_READ and SQL_FOLD_DELETE share. */
static sqlite3_stmt *bind_range(sqlite3_stmt *s, int64_t from, int64_t to, int64_t most_wall_ns,
                                int64_t spared_flags)
{
    sqlite3_bind_int64(s, 1, from);
    sqlite3_bind_int64(s, 2, to);
    sqlite3_bind_int64(s, 3, most_wall_ns);
    sqlite3_bind_int64(s, 4, spared_flags);
    return s;
}

/* Folds the rows with ids from..to that took at most `most_wall_ns` and have none of the flags. */
static int fold_range(struct store_writer *w, struct rank_state *r, int64_t from, int64_t to,
                      int64_t most_wall_ns, int64_t spared_flags, int64_t *ret_folded)
{
    int rc = writer_prepare(w, SQL_FOLD_READ);
    if (rc == SQLITE_OK)
        rc = writer_prepare(w, SQL_FOLD_DELETE);
    if (rc)
        return rc;
    memset(w->hist, 0, sizeof w->hist);
    struct step_fold_row v = {.first_step = -1};
    struct step_row row;
    int64_t folded = 0;
    sqlite3_stmt *s = bind_range(w->sql[SQL_FOLD_READ], from, to, most_wall_ns, spared_flags);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        table_read(s, STORE_steps, &row);
        int64_t step = row.id & ((INT64_C(1) << STORE_STEP_SHIFT) - 1);
        int64_t first = step - step % w->fold.fold_steps;
        if (first != v.first_step) {
            if ((rc = interval_write(w, &v)))
                break;
            interval_start(&v, r->rank, first);
        }
        interval_add(w, &v, &row);
        folded++;
    }
    sqlite3_reset(s);
    if (rc == SQLITE_DONE)
        rc = interval_write(w, &v);
    if (rc == SQLITE_OK)
        rc = hist_write(w, r->rank);
    if (rc == SQLITE_OK)
        rc = sql_run(bind_range(w->sql[SQL_FOLD_DELETE], from, to, most_wall_ns, spared_flags));
    *ret_folded = folded;
    return rc;
}

/* ---- what to fold ------------------------------------------------------------------------ */

static int64_t step_id(const struct rank_state *r, int64_t step)
{
    return (int64_t)r->rank << STORE_STEP_SHIFT | step;
}

/* The wall times of the next batch of a rank and the last id of it. */
static int read_walls(struct store_writer *w, const struct rank_state *r, double *walls,
                      int64_t *ret_count, int64_t *ret_last)
{
    int rc = writer_prepare(w, SQL_WALLS);
    if (rc)
        return rc;
    int64_t count = 0;
    sqlite3_stmt *s = w->sql[SQL_WALLS];
    sqlite3_bind_int64(s, 1, step_id(r, r->frontier));
    sqlite3_bind_int64(s, 2, ((int64_t)r->rank + 1) << STORE_STEP_SHIFT);
    sqlite3_bind_int64(s, 3, w->limits.fold_batch);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        *ret_last = sqlite3_column_int64(s, 0);
        walls[count++] = (double)sqlite3_column_int64(s, 1);
    }
    sqlite3_reset(s);
    *ret_count = count;
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int fold_oldest(struct store_writer *w, struct rank_state *r)
{
    double *walls = mem_alloc_array((size_t)w->limits.fold_batch, sizeof *walls);
    if (!walls)
        return SQLITE_NOMEM;
    int64_t count = 0, last = 0, folded = 0;
    int rc = read_walls(w, r, walls, &count, &last);
    if (rc == SQLITE_OK && count == 0) {
        /* The count was too high (a step came twice): believe the table. */
        w->fold.fresh -= r->fresh;
        r->fresh = 0;
    }
    if (rc == SQLITE_OK && count) {
        double median = stats_quantile(walls, (size_t)count, 0.5);
        double p99 = stats_quantile(walls, (size_t)count, 0.99);
        double most = 2 * median > p99 ? 2 * median : p99;
        rc = fold_range(w, r, step_id(r, r->frontier), last, (int64_t)most, MARKED, &folded);
        r->frontier = (last & ((INT64_C(1) << STORE_STEP_SHIFT) - 1)) + 1;
        r->fresh -= count;
        w->fold.fresh -= count;
        r->kept += count - folded;
        w->fold.kept += count - folded;
    }
    mem_free(walls);
    return rc;
}

/* The shorter half of what was left whole goes into the intervals after all. */
static int fold_kept(struct store_writer *w, struct rank_state *r)
{
    int64_t from = step_id(r, w->limits.first_steps), to = step_id(r, r->frontier);
    int64_t most = INT64_MAX, folded = 0;
    int rc = writer_prepare(w, SQL_KEPT_WALL);
    if (rc)
        return rc;
    sqlite3_stmt *s = w->sql[SQL_KEPT_WALL];
    sqlite3_bind_int64(s, 1, from);
    sqlite3_bind_int64(s, 2, to);
    sqlite3_bind_int64(s, 3, r->kept / 2);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW)
        most = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return rc;
    rc = fold_range(w, r, from, to - 1, most, 0, &folded);
    /* When nothing was there to fold, the count was too high: believe the table. */
    int64_t gone = folded ? folded : r->kept;
    gone = gone < r->kept ? gone : r->kept;
    r->kept -= gone;
    w->fold.kept -= gone;
    return rc;
}

/* Intervals of twice the length: at most two old ones make a new one. */
static int merge_intervals(struct store_writer *w)
{
    sqlite3_stmt *s = NULL;
    w->fold.fold_steps *= 2;
    int rc = sql_exec(w->db, "DROP TABLE IF EXISTS temp.merged");
    if (rc == SQLITE_OK)
        rc = sql_prepare_taken(w->db, merge_sql(), &s);
    if (rc == SQLITE_OK) {
        sqlite3_bind_int64(s, 1, w->fold.fold_steps);
        rc = sql_run(s);
    }
    sqlite3_finalize(s);
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, "DELETE FROM step_folds; INSERT INTO step_folds SELECT * FROM "
                             "temp.merged; DROP TABLE temp.merged");
    if (rc == SQLITE_OK)
        rc = sql_int(w->db, "SELECT count(*) FROM step_folds", &w->fold.folds);
    return rc;
}

static struct rank_state *rank_with_most(struct store_writer *w, int kept)
{
    struct rank_state *most = NULL;
    for (size_t i = 0; i < w->fold.rank_count; i++) {
        struct rank_state *r = &w->fold.ranks[i];
        if (!most || (kept ? r->kept > most->kept : r->fresh > most->fresh))
            most = r;
    }
    return most;
}

int fold_trim(struct store_writer *w)
{
    struct fold_state *f = &w->fold;
    int rc = SQLITE_OK;
    while (rc == SQLITE_OK && f->fresh > w->limits.step_rows + w->limits.fold_batch)
        rc = fold_oldest(w, rank_with_most(w, 0));
    while (rc == SQLITE_OK && f->kept > w->limits.kept_rows)
        rc = fold_kept(w, rank_with_most(w, 1));
    if (rc == SQLITE_OK && f->folds > w->limits.fold_rows)
        rc = sql_int(w->db, "SELECT count(*) FROM step_folds", &f->folds);
    while (rc == SQLITE_OK && f->folds > w->limits.fold_rows)
        rc = merge_intervals(w);
    return rc;
}

/* ---- taking steps back ------------------------------------------------------------------- */

static int delete_where(struct store_writer *w, const char *sql, int64_t a, int64_t b)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(w->db, sql, -1, &s, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_int64(s, 1, a);
        sqlite3_bind_int64(s, 2, b);
        rc = sql_run(s);
    }
    sqlite3_finalize(s);
    return rc;
}

int fold_drop(struct store_writer *w, int32_t rank, int64_t first)
{
    struct fold_state *f = &w->fold;
    struct rank_state *r = find_rank(w, rank);
    if (!r)
        return SQLITE_OK;
    if (first < r->frontier && r->frontier > w->limits.first_steps) {
        /* A histogram cannot give back some of its steps: all that was folded goes. */
        int rc = delete_where(w, "DELETE FROM step_folds WHERE rank=?1", rank, 0);
        if (rc == SQLITE_OK)
            rc = delete_where(w, "DELETE FROM step_hist WHERE rank=?1", rank, 0);
        if (rc)
            return rc;
        f->kept -= r->kept;
        r->kept = 0;
        r->frontier = w->limits.first_steps;
    }
    int rc = delete_where(w, "DELETE FROM steps WHERE id>=?1 AND id<?2", step_id(r, first),
                          ((int64_t)rank + 1) << STORE_STEP_SHIFT);
    if (rc)
        return rc;
    f->fresh -= r->fresh;
    r->fresh = first > r->frontier ? first - r->frontier : 0;
    f->fresh += r->fresh;
    return SQLITE_OK;
}
