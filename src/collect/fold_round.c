/* fold_round.c: from segments to steps.
 *
 * A segment ends where an optimizer has stepped. A step is a round of the optimizers: the pending
 * round takes the segments of optimizers that have not yet stepped in it; when one steps again, the
 * round is given out and a new one starts.
 *
 *     optimizer   A A A          D G D G         D D D G D D       A A B B
 *     rounds      A|A|A          DG|DG           D|D|DG|D|D        A|A|B|B
 *
 * The last column is a script that trains A, then B. When B first steps after A, it cannot be told
 * yet whether it belongs to A's round. Its segment is held in doubt until the next one: if B steps
 * again at once, A's round was over; anything else confirms that B was part of it, and that pair is
 * not doubted again.
 *
 * A script that calls leat.step() has said what a step is: each call ends one, and optimizers end
 * none.
 */
#include "collect/fold_internal.h"

#include "base/mem.h"

#include <string.h>

int fold_ids_add(struct id_list *list, uint32_t id)
{
    if (list->count > 0 && list->ids[list->count - 1] == id)
        return 0;
    if (list->count >= FOLD_OPTIMIZERS)
        return 0;
    int result = mem_reserve(&list->ids, &list->capacity, list->count + 1, sizeof *list->ids);
    if (result == 0)
        list->ids[list->count++] = id;
    return result;
}

void fold_tally_add(struct tally *sum, const struct tally *part)
{
    sum->wall_ns += part->wall_ns;
    for (int i = 0; i < PHASES; i++)
        sum->phase_ns[i] += part->phase_ns[i];
    if (part->end_ns > sum->end_ns)
        sum->end_ns = part->end_ns;
    sum->samples += part->samples;
    sum->samples_unknown |= part->samples_unknown;
    sum->micro_steps += part->micro_steps;
    sum->records += part->records;
    sum->flags |= part->flags;
    sum->segments += part->segments;
}

void fold_give(struct fold *f, const struct tally *tally)
{
    struct step_row row = {
        .id = f->given++,
        .flags = tally->flags,
        .end_ns = store_signed(fold_relative(f, tally->end_ns)),
        .wall_ns = store_signed(tally->wall_ns),
        .samples = tally->micro_steps > 0 && !tally->samples_unknown ? tally->samples : STORE_NULL,
        .micro_steps = tally->micro_steps,
        .records = tally->records,
    };
    for (int i = 0; i < PHASES; i++)
        row.phase_ns[i] = store_signed(tally->phase_ns[i]);
    if (!(f->signals & LEAT_SIGNAL_H2D))
        row.phase_ns[PHASE_H2D] = STORE_NULL;
    if (!(f->signals & LEAT_SIGNAL_SYNC))
        row.phase_ns[PHASE_SYNC] = STORE_NULL;
    if (f->trains && f->given <= FOLD_EARLY_STEPS)
        fold_tally_add(&f->early, tally);
    if (f->sink.step)
        f->sink.step(f->sink.context, &row);
}

/* Optimizers are numbered from 0 by the hooks, so the common ids have a slot of their own. */
static uint32_t slot_of(uint32_t id)
{
    const uint32_t half = FOLD_OPTIMIZERS / 2;
    return id < half ? id : half + (id * 2654435761u) % half;
}

static bool in_round(const struct fold *f, const struct id_list *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        if (f->optimizers[slot_of(ids->ids[i])].round == f->round_number)
            return true;
    return false;
}

static void enter_round(struct fold *f, const struct id_list *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        f->optimizers[slot_of(ids->ids[i])].round = f->round_number;
}

static uint64_t leader_bit(const struct fold *f)
{
    return 1ull << (f->round_leader % 64);
}

static void give_round(struct fold *f)
{
    f->last_round_segments = f->round.segments;
    struct tally whole = f->round;
    f->round = (struct tally){0};
    f->round_number++;
    fold_give(f, &whole);
}

static void start_round(struct fold *f, const struct id_list *ids)
{
    f->round_leader = ids->count ? slot_of(ids->ids[0]) : 0;
    enter_round(f, ids);
}

static void confirm_doubt(struct fold *f)
{
    for (size_t i = 0; i < f->doubt_ids.count; i++)
        f->optimizers[slot_of(f->doubt_ids.ids[i])].with |= leader_bit(f);
    enter_round(f, &f->doubt_ids);
    fold_tally_add(&f->round, &f->doubt);
    f->doubt = (struct tally){0};
    f->doubt_ids.count = 0;
}

static bool same_optimizer(const struct id_list *a, const struct id_list *b)
{
    return a->count > 0 && b->count > 0 && a->ids[0] == b->ids[0];
}

static void settle_doubt(struct fold *f, const struct id_list *next)
{
    if (!same_optimizer(&f->doubt_ids, next)) {
        confirm_doubt(f);
        return;
    }
    give_round(f);
    start_round(f, &f->doubt_ids);
    f->round = f->doubt;
    f->doubt = (struct tally){0};
    f->doubt_ids.count = 0;
}

static void take_early_steps_back(struct fold *f)
{
    if (f->given == 0 || f->given > FOLD_EARLY_STEPS)
        return;
    if (f->sink.drop_steps)
        f->sink.drop_steps(f->sink.context);
    fold_tally_add(&f->early, &f->round);
    f->round = f->early;
    f->given = 0;
}

/* Decides which round the segment belongs to, before it is painted: its spans carry the number of
 * the step, which is the number of steps given out by then. */
void fold_round_begin(struct fold *f, const struct segment *segment)
{
    const struct id_list *ids = &segment->optimizers;
    f->into_doubt = false;
    if (f->round_number == 0)
        f->round_number = 1;
    if (segment->is_step) {
        if (f->doubt.segments)
            confirm_doubt(f);
        if (!f->early_settled)
            take_early_steps_back(f);
        f->early_settled = true;
        return;
    }
    if (f->doubt.segments)
        settle_doubt(f, ids);
    if (f->round.segments && in_round(f, ids))
        give_round(f);
    if (!f->round.segments) {
        start_round(f, ids);
    } else if (ids->count && f->optimizers[slot_of(ids->ids[0])].with & leader_bit(f)) {
        enter_round(f, ids);
    } else {
        f->into_doubt = true;
        f->doubt_ids.count = 0;
        for (size_t i = 0; i < ids->count; i++)
            if (fold_ids_add(&f->doubt_ids, ids->ids[i]) < 0)
                break; /* then fewer optimizers are remembered: the round may end later */
    }
}

void fold_round_add(struct fold *f, const struct segment *segment, const struct tally *tally)
{
    fold_tally_add(f->into_doubt ? &f->doubt : &f->round, tally);
    if (segment->is_step)
        give_round(f);
}

void fold_round_flush(struct fold *f)
{
    if (f->doubt.segments)
        confirm_doubt(f);
    if (f->round.segments && !f->explicit_steps)
        give_round(f);
}
