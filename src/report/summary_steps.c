/* summary_steps.c: the summary's step_time part.
 *
 * The figures are those of the typical rank (facts.typical), except the throughput, which is the
 * sum over the ranks.
 */
#include "report/summary_parts.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct rank_stats {
    const struct rank_facts *facts;
    struct step_stats of[PHASES + 1]; /* the last one is the whole step */
};

static double samples_per_s(const struct rank_facts *rank)
{
    if (rank->samples <= 0 || !(rank->kept_ms > 0))
        return NAN;
    return (double)rank->samples / rank->kept_ms * 1000;
}

static json_t *phases_part(const struct rank_stats *rank)
{
    json_t *phases = json_object();
    for (int phase = 0; phases && phase < PHASES; phase++) {
        const struct step_stats *s = rank ? &rank->of[phase] : NULL;
        json_t *item =
            s && isfinite(s->mean)
                ? json_pack("{so so so so}", "mean", json_number_or_null(s->mean), "median",
                            json_number_or_null(s->median), "p99", json_number_or_null(s->p99),
                            "share", json_number_or_null(s->share))
                : json_null();
        if (json_object_set_new(phases, leat_phase_names[phase], item) < 0) {
            json_decref(phases);
            return NULL;
        }
    }
    return phases;
}

/* The figures of one rank; all null for a run without steps. */
static json_t *rank_part(const struct rank_stats *rank)
{
    static const struct step_stats nothing = {NAN, NAN, NAN, NAN, NAN};
    const struct rank_facts *f = rank ? rank->facts : NULL;
    const struct step_stats *wall = rank ? &rank->of[PHASES] : &nothing;
    return json_pack(
        "{so so so so so so so so so so so so so}", "steps",
        f ? json_integer(f->steps) : json_null(), "kept_steps",
        f ? json_integer(f->kept) : json_null(), "warmup_steps",
        f ? json_integer(f->warmup_steps) : json_null(), "compile_steps",
        f ? json_integer(f->compile_steps) : json_null(), "compile_ms",
        json_number_or_null(f && f->compile_steps > 0 ? f->compile_ms : NAN), "micro_steps",
        f && f->kept > 0 ? summary_integer(f->micro_steps) : json_null(), "samples_per_s",
        json_number_or_null(f ? samples_per_s(f) : NAN), "mean", json_number_or_null(wall->mean),
        "median", json_number_or_null(wall->median), "p90", json_number_or_null(wall->p90), "p99",
        json_number_or_null(wall->p99), "cost", json_number_or_null(f ? f->cost_ms : NAN), "phases",
        phases_part(rank));
}

static double throughput(const struct rank_stats *ranks, size_t count)
{
    double total = 0;
    for (size_t i = 0; i < count; i++)
        total += samples_per_s(ranks[i].facts); /* NaN of one rank makes the sum unknown */
    return count ? total : NAN;
}

/* Evaluation, apart from the training: the time of the typical rank, and its share of the run. */
static json_t *eval_part(const struct facts *facts, const struct rank_stats *typical)
{
    double ms = typical ? typical->facts->eval_ms : NAN;
    if (!(ms > 0))
        return json_null();
    return json_pack("{so so}", "total", json_number_or_null(ms), "share",
                     json_number_or_null(ms / facts->duration_ms));
}

static json_t *spans_part(const struct facts *facts)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < facts->span_count; i++) {
        const struct span_fact *span = &facts->spans[i];
        json_t *item =
            json_pack("{so so so so so so}", "rank", summary_integer(span->rank), "name",
                      summary_text(span->name), "n", summary_integer(span->n), "total",
                      json_number_or_null(span->total_ms), "max", json_number_or_null(span->max_ms),
                      "in_other", json_number_or_null(span->other_ms));
        if (json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static const char *kind_of_steps(const struct facts *facts)
{
    return facts->training > 0 ? "training" : facts->training == 0 ? "inference" : NULL;
}

json_t *summary_step_time(const struct facts *facts)
{
    size_t count = facts->rank_count;
    struct rank_stats *ranks = mem_alloc_array(count, sizeof *ranks);
    json_t *by_rank = json_object();
    json_t *part = NULL;
    if (!ranks || !by_rank)
        goto out;
    for (size_t i = 0; i < count; i++) {
        ranks[i].facts = &facts->ranks[i];
        for (int phase = 0; phase <= PHASES; phase++)
            facts_stats(facts, facts->ranks[i].rank, phase, &ranks[i].of[phase]);
        char name[16];
        snprintf(name, sizeof name, "%d", facts->ranks[i].rank);
        if (json_object_set_new(by_rank, name, rank_part(&ranks[i])) < 0)
            goto out;
    }
    const struct rank_stats *typical =
        facts->typical >= 0 && (size_t)facts->typical < count ? &ranks[facts->typical] : NULL;
    part = rank_part(typical);
    json_t *more =
        json_pack("{so so so so so so sO}", "kind", summary_text(kind_of_steps(facts)), "clock",
                  typical ? json_string("host") : json_null(), "rank",
                  typical ? summary_integer(typical->facts->rank) : json_null(), "samples_per_s",
                  json_number_or_null(throughput(ranks, count)), "eval", eval_part(facts, typical),
                  "spans", spans_part(facts), "ranks", by_rank);
    if (!more || json_object_update(part, more) < 0) {
        json_decref(part);
        part = NULL;
    }
    json_decref(more);
out:
    json_decref(by_rank);
    mem_free(ranks);
    return part;
}
