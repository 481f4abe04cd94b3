/* facts_steps.c: steps into arrays, one set per rank; which steps are kept; which rank is typical.
 *
 * A report must appear within a second after a run of 8 ranks and 100 000 steps, so rows go
 * directly from the cursor into the arrays that the rules use: no row objects, no second pass over
 * the database.
 *
 * Left out ("not kept"):
 *   - compile steps: counted, and their time summed, so that a report can name them;
 *   - warm-up: see facts_warmup.
 */
#include "facts_load.h"

#include "base/mem.h"
#include "base/stats.h"

#include <leat/recorder.h>

#include <math.h>
#include <string.h>

/* ---- warm-up ------------------------------------------------------------------------------- */

/* A settled step is not slower than the median of the rest by more than a quarter, or by more than
 * five of its usual deviations, whichever is more. A quarter: below it, a step costs less than the
 * verdict thresholds can see (10 % of time needs more than that of a few steps). Five deviations
 * (1.4826 MAD each, as for a normal distribution): a run whose step times always vary settles too.
 */
#define SETTLED_RATIO      0.25
#define SETTLED_DEVIATIONS (5 * 1.4826)
#define SETTLED_WINDOW     5
/* In a run of fewer than 20 steps only the first step may go, and only when it is this many times
 * the median of the others: start-up work (allocator, caches, worker start) shows up as several
 * times a step, while ordinary scatter rarely reaches twice. */
#define FIRST_STEP_OUTLIER 3.0

static double median_of(const double *values, size_t n, double *scratch)
{
    memcpy(scratch, values, n * sizeof *values);
    return stats_quantile(scratch, n, 0.5);
}

/* The step time settles at the first step, the third at the earliest, that is itself settled and
 * whose running median over five steps lies in the band around the median of the second half of the
 * run. The running median is compared on both sides (full prefetch queues make first steps fast),
 * and ignores a single slow step in its window: that one is a stall, not warm-up. */
size_t facts_warmup(const double *wall_ms, size_t n, double *scratch)
{
    if (n < 20)
        return n >= 3 && wall_ms[0] > FIRST_STEP_OUTLIER * median_of(wall_ms + 1, n - 1, scratch);
    const size_t least = 3, most = n / 10 > least ? n / 10 : least;
    size_t rest = n / 2;
    double centre = median_of(wall_ms + rest, n - rest, scratch);
    for (size_t i = rest; i < n; i++)
        scratch[i - rest] = fabs(wall_ms[i] - centre);
    double band = SETTLED_DEVIATIONS * stats_quantile(scratch, n - rest, 0.5);
    if (band < SETTLED_RATIO * centre)
        band = SETTLED_RATIO * centre;
    size_t i = least;
    for (; i < most; i++) {
        double near = median_of(wall_ms + i, SETTLED_WINDOW, scratch);
        if (wall_ms[i] <= centre + band && fabs(near - centre) <= band)
            break;
    }
    return i;
}

/* ---- reading ------------------------------------------------------------------------------- */

struct loading {
    struct facts *facts;
    size_t rank_capacity;
    /* the rank being read: capacity of its arrays, and what is needed only until it is finished */
    size_t capacity, extra_capacity;
    double *samples, *micro; /* one per entry; samples NaN when unknown */
    double records;
};

static int reserve_entry(struct rank_facts *r, struct loading *l)
{
    if (r->count < l->capacity)
        return 0;
    size_t wanted = l->capacity + l->capacity / 2 + 1024;
#define GROW(array)                                                                                \
    do {                                                                                           \
        void *grown = mem_resize(array, wanted, sizeof *(array));                                  \
        if (!grown)                                                                                \
            return -ENOMEM;                                                                        \
        (array) = grown;                                                                           \
    } while (0)
    GROW(r->step);
    GROW(r->end_ms);
    GROW(r->wall_ms);
    GROW(r->weight);
    GROW(r->flags);
    for (int p = 0; p < PHASES; p++)
        GROW(r->phase_ms[p]);
    if (wanted > l->extra_capacity) {
        GROW(l->samples);
        GROW(l->micro);
        l->extra_capacity = wanted;
    }
#undef GROW
    l->capacity = wanted;
    return 0;
}

static uint32_t parse_signals(const char *text)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } known[] = {
        {"fetch",     LEAT_SIGNAL_FETCH    },
        {"backward",  LEAT_SIGNAL_BACKWARD },
        {"optimizer", LEAT_SIGNAL_OPTIMIZER},
        {"sync",      LEAT_SIGNAL_SYNC     },
        {"h2d",       LEAT_SIGNAL_H2D      },
        {"worker",    LEAT_SIGNAL_WORKER   },
        {"step",      LEAT_SIGNAL_STEP     }
    };
    uint32_t bits = 0;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strlen(known[i].name) == length && memcmp(known[i].name, text, length) == 0)
                bits |= known[i].bit;
        text += length + (text[length] == ',');
    }
    return bits;
}

static double *free_if_unknown(double *values, size_t n)
{
    size_t known = 0;
    for (size_t i = 0; i < n; i++)
        known += !isnan(values[i]);
    if (known == 0) {
        mem_free(values);
        return NULL;
    }
    for (size_t i = 0; known < n && i < n; i++)
        if (isnan(values[i]))
            values[i] = 0;
    return values;
}

static void keep_entry(struct rank_facts *r, struct loading *l, size_t from, size_t to)
{
    r->step[to] = r->step[from];
    r->end_ms[to] = r->end_ms[from];
    r->wall_ms[to] = r->wall_ms[from];
    r->weight[to] = r->weight[from];
    r->flags[to] = r->flags[from];
    for (int p = 0; p < PHASES; p++)
        if (r->phase_ms[p])
            r->phase_ms[p][to] = r->phase_ms[p][from];
    l->samples[to] = l->samples[from];
    l->micro[to] = l->micro[from];
}

/* Leaves out compile steps and warm-up, and sums what is left. A folded entry is never warm-up: it
 * holds a thousand steps or more, of which a few were. */
static int finish_rank(struct rank_facts *r, struct loading *l)
{
    double *walls = mem_alloc_array(2 * r->count + SETTLED_WINDOW, sizeof *walls);
    if (!walls)
        return -ENOMEM;
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++)
        if (!(r->flags[i] & STEP_COMPILE))
            walls[n++] = r->wall_ms[i];
    size_t warmup = facts_warmup(walls, n, walls + n);
    mem_free(walls);

    for (int p = 0; p < PHASES; p++)
        r->phase_ms[p] = free_if_unknown(r->phase_ms[p], r->count);
    size_t kept = 0, seen = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (r->weight[i] == 1 && (r->flags[i] & STEP_COMPILE)) {
            r->compile_steps++;
            r->compile_ms += r->wall_ms[i];
        } else if (r->weight[i] == 1 && seen++ < warmup) {
            r->warmup_steps++;
        } else {
            warmup = 0; /* a folded entry ends it */
            keep_entry(r, l, i, kept++);
        }
    }
    r->count = kept;
    for (size_t i = 0; i < kept; i++) {
        r->kept += (int64_t)r->weight[i];
        r->kept_ms += r->weight[i] * r->wall_ms[i];
        r->micro_steps += (int64_t)l->micro[i];
        if (r->samples >= 0)
            r->samples = isnan(l->samples[i]) ? -1 : r->samples + (int64_t)l->samples[i];
    }
    return 0;
}

static int start_rank(struct loading *l, int rank)
{
    struct facts *f = l->facts;
    if (mem_reserve(&f->ranks, &l->rank_capacity, f->rank_count + 1, sizeof *f->ranks) < 0)
        return -ENOMEM;
    f->ranks[f->rank_count++] =
        (struct rank_facts){.rank = rank, .local_rank = -1, .pid = -1, .inference = 1};
    l->capacity = 0;
    l->records = 0;
    return 0;
}

/* What finish_rank leaves for later, because it needs the number of records: cost_ms holds records
 * per step until the cost of a record is known. */
static int end_rank(struct loading *l)
{
    if (l->facts->rank_count == 0)
        return 0;
    struct rank_facts *r = &l->facts->ranks[l->facts->rank_count - 1];
    r->cost_ms = r->steps ? l->records / (double)r->steps : 0;
    return finish_rank(r, l);
}

/* `id` as in steps; `n` steps, whose sums are in `r`. An entry holds means. */
static int add_entry(struct loading *l, int64_t id, int64_t n, const struct step_row *from)
{
    struct facts *f = l->facts;
    int rank = (int)(id >> STORE_STEP_SHIFT);
    if (f->rank_count == 0 || f->ranks[f->rank_count - 1].rank != rank) {
        int result = end_rank(l);
        if (result == 0)
            result = start_rank(l, rank);
        if (result < 0)
            return result;
    }
    struct rank_facts *r = &f->ranks[f->rank_count - 1];
    if (reserve_entry(r, l) < 0)
        return -ENOMEM;
    size_t i = r->count;
    double unit = 1e-6 / (double)n;
    r->step[i] = id & ((1ll << STORE_STEP_SHIFT) - 1);
    r->end_ms[i] = (double)from->end_ns * 1e-6;
    r->wall_ms[i] = (double)from->wall_ns * unit;
    for (int p = 0; p < PHASES; p++)
        r->phase_ms[p][i] = facts_real(from->phase_ns[p]) * unit;
    l->samples[i] = facts_real(from->samples);
    l->micro[i] = (double)from->micro_steps;
    l->records += (double)from->records;
    r->flags[i] = (uint32_t)from->flags;
    r->weight[i] = (double)n;
    r->steps += n;
    r->folded |= n > 1;
    r->inference &= !!(r->flags[i] & STEP_INFERENCE);
    r->count++;
    return 0;
}

static int add_fold(struct loading *l, const struct step_fold_row *fold)
{
    struct step_row sums = {.end_ns = fold->end_ns,
                            .wall_ns = fold->wall_ns,
                            .samples = fold->samples,
                            .micro_steps = fold->micro_steps,
                            .records = fold->records,
                            .flags = fold->flags};
    memcpy(sums.phase_ns, fold->phase_ns, sizeof sums.phase_ns);
    return add_entry(l, store_step_id(fold->rank, fold->first_step), fold->n, &sums);
}

/* Steps and step_folds, both ordered by rank and step, merged. */
static int load_rows(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
    struct loading l = {.facts = f};
    struct store_cursor steps = {0}, folds = {0};
    struct step_row step;
    struct step_fold_row fold;
    int more_steps = store_open_steps(reader, "ORDER BY id", &steps, err), more_folds = 0;
    int result = more_steps;
    if (result >= 0)
        result = more_folds =
            store_open_step_folds(reader, "ORDER BY rank, first_step", &folds, err);
    if (result >= 0)
        result = more_steps = store_next_step(&steps, &step);
    if (result >= 0)
        result = more_folds = store_next_step_fold(&folds, &fold);
    while (result >= 0 && (more_steps || more_folds)) {
        if (more_folds && (!more_steps || store_step_id(fold.rank, fold.first_step) < step.id)) {
            result = add_fold(&l, &fold);
            if (result >= 0)
                result = more_folds = store_next_step_fold(&folds, &fold);
        } else {
            result = add_entry(&l, step.id, 1, &step);
            if (result >= 0)
                result = more_steps = store_next_step(&steps, &step);
        }
    }
    if (result >= 0)
        result = end_rank(&l);
    store_cursor_done(&steps);
    store_cursor_done(&folds);
    mem_free(l.samples);
    mem_free(l.micro);
    return result;
}

/* ---- other data of a rank ------------------------------------------------------------------ */

static int load_bins(struct store_reader *reader, struct rank_facts *r, struct leat_err *err)
{
    char tail[64];
    struct store_cursor rows;
    struct step_bin_row row;
    snprintf(tail, sizeof tail, "WHERE rank = %d ORDER BY bin", r->rank);
    int more = store_open_step_hist(reader, tail, &rows, err);
    while (more >= 0 && (more = store_next_step_bin(&rows, &row)) > 0) {
        int p = 0;
        while (p < PHASES && (!row.phase || strcmp(row.phase, leat_phase_names[p]) != 0))
            p++;
        if ((p == PHASES && (!row.phase || strcmp(row.phase, "wall") != 0)) || row.n < 0)
            continue;
        if (!r->folded_bins[p] &&
            !(r->folded_bins[p] = mem_alloc_array(DURATION_BUCKETS, sizeof(uint64_t))))
            more = -ENOMEM;
        else
            r->folded_bins[p][facts_bucket(row.bin)] += (uint64_t)row.n;
    }
    store_cursor_done(&rows);
    return more;
}

/* The process that made the steps, and the cost of its records. */
static int load_process_of(struct store_reader *reader, struct rank_facts *r, struct leat_err *err)
{
    char tail[96];
    double record_cost_ms = 0;
    struct store_cursor rows;
    struct process_row row;
    snprintf(tail, sizeof tail, "WHERE rank = %d AND role = 'main' ORDER BY recorded, pid",
             r->rank);
    int more = store_open_processes(reader, tail, &rows, err);
    while (more >= 0 && (more = store_next_process(&rows, &row)) > 0) { /* the last one decides */
        r->pid = row.pid;
        r->local_rank = (int)facts_int(row.local_rank);
        r->signals = parse_signals(row.signals);
        record_cost_ms = row.record_cost_ns == STORE_NULL ? 0 : facts_ms(row.record_cost_ns);
    }
    store_cursor_done(&rows);
    r->cost_ms *= record_cost_ms;
    return more;
}

static int load_rank(struct store_reader *reader, struct facts *f, struct rank_facts *r,
                     struct leat_err *err)
{
    int result = load_process_of(reader, r, err);
    for (size_t i = 0; i < f->span_count; i++)
        if (f->spans[i].rank == r->rank && f->spans[i].kind == SPAN_EVAL)
            r->eval_ms = f->spans[i].total_ms;
    if (result >= 0 && r->folded)
        result = load_bins(reader, r, err);
    return result;
}

int facts_load_steps(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
    f->typical = -1;
    f->training = -1;
    int result = load_rows(reader, f, err);
    for (size_t i = 0; result >= 0 && i < f->rank_count; i++) {
        result = load_rank(reader, f, &f->ranks[i], err);
        if (f->training != 1)
            f->training = !f->ranks[i].inference;
    }
    return result;
}

/* ---- the typical rank ---------------------------------------------------------------------- */

/* Ranks in lock-step have the same step time, whichever of them is late: within 5 %, which covers
 * the scatter of the start and end of the aligned steps. */
#define LOCK_STEP_RATIO 0.05

struct candidate {
    double key;
    size_t index;
};

/* The lower median: with an even number of ranks, the better of the two in the middle. */
static size_t lower_median(struct candidate *c, size_t n)
{
    for (size_t i = 1; i < n; i++) /* insertion sort: ranks of one node are few, order stable */
        for (size_t j = i; j > 0 && c[j].key < c[j - 1].key; j--) {
            struct candidate swap = c[j];
            c[j] = c[j - 1];
            c[j - 1] = swap;
        }
    return (n - 1) / 2;
}

/* Keeps the candidates whose key is within lock-step of the lower median's, and returns how many.
 */
static size_t keep_middle(struct candidate *c, size_t n)
{
    double middle = c[lower_median(c, n)].key;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (fabs(c[i].key - middle) <= LOCK_STEP_RATIO * middle)
            c[kept++] = c[i];
    return kept;
}

/* Time per step in none of the phases of `phase_bits`. */
static double mean_without(const struct rank_facts *r, unsigned phase_bits)
{
    double ms = r->stats[PHASES].mean;
    for (int p = 0; p < PHASES; p++)
        if ((phase_bits >> p & 1) && r->phase_ms[p])
            ms -= r->stats[p].mean;
    return ms;
}

enum run_end facts_run_end(const struct facts *facts)
{
    return (enum run_end)name_index(run_end_names, facts->ended);
}

size_t facts_world_ranks(const struct facts *facts)
{
    size_t n = 0;
    while (n < facts->rank_count && facts->ranks[n].rank < facts->world_size)
        n++;
    return n;
}

/* The rank with the median step time. Ranks that wait for each other all have it, so among those
 * in lock-step the median of their own work decides: a step less backward and sync, in which a rank
 * may be waiting, and on a tie less forward too. With two ranks of which one is late, the typical
 * one is therefore the other. */
int facts_choose_typical(struct facts *f)
{
    f->typical = f->rank_count > 0 ? 0 : -1;
    struct candidate *c = mem_alloc_array(f->rank_count + 1, sizeof *c);
    if (!c)
        return -ENOMEM;
    size_t n = 0, world = facts_world_ranks(f);
    for (size_t i = 0; i < world; i++)
        if (f->ranks[i].kept > 0)
            c[n++] = (struct candidate){f->ranks[i].stats[PHASES].median, i};
    const unsigned waits = 1u << PHASE_BACKWARD | 1u << PHASE_SYNC;
    const unsigned waiting[] = {waits, waits | 1u << PHASE_FORWARD};
    for (int round = 0; n > 0 && round < 2; round++) {
        n = keep_middle(c, n);
        for (size_t i = 0; i < n; i++)
            c[i].key = mean_without(&f->ranks[c[i].index], waiting[round]);
    }
    if (n > 0)
        f->typical = (int)c[lower_median(c, n)].index;
    mem_free(c);
    return 0;
}
