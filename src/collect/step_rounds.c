/* step_rounds.c: from segments to steps.
 *
 * A segment ends where an optimizer has stepped. A step is a round of the optimizers: the pending
 * round takes the segments of optimizers that have not yet stepped in it; when one steps again, the
 * round is emitted and a new one starts.
 *
 *     optimizer   A A A          D G D G         D D D G D D       A A B B
 *     rounds      A|A|A          DG|DG           D|D|DG|D|D        A|A|B|B
 *
 * The last column is a script that trains A, then B. When B first steps after A, it is not
 * known whether it belongs to A's round. Its segment is in doubt until the next one: if B steps
 * again at once, A's round was over; otherwise B is part of it, and that pair is not doubted again.
 *
 * In a script that calls leat.step() each call ends a step, and optimizers end none.
 */
#include "collect/step_builder_internal.h"

#include "base/mem.h"

#include <string.h>

int id_list_add(struct id_list *list, uint32_t id)
{
    if (list->count > 0 && list->ids[list->count - 1] == id)
        return 0;
    if (list->count >= MAX_OPTIMIZERS)
        return 0;
    int result = mem_reserve(&list->ids, &list->capacity, list->count + 1, sizeof *list->ids);
    if (result == 0)
        list->ids[list->count++] = id;
    return result;
}

void tally_add(struct tally *sum, const struct tally *part)
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

void step_emit(struct step_builder *sb, const struct tally *tally)
{
    struct step_row row = {
        .id = sb->emitted++,
        .flags = tally->flags,
        .end_ns = store_signed(step_relative_ns(sb, tally->end_ns)),
        .wall_ns = store_signed(tally->wall_ns),
        .samples = tally->micro_steps > 0 && !tally->samples_unknown ? tally->samples : STORE_NULL,
        .micro_steps = tally->micro_steps,
        .records = tally->records,
    };
    for (int i = 0; i < PHASES; i++)
        row.phase_ns[i] = store_signed(tally->phase_ns[i]);
    if (!(sb->signals & LEAT_SIGNAL_H2D))
        row.phase_ns[PHASE_H2D] = STORE_NULL;
    if (!(sb->signals & LEAT_SIGNAL_SYNC))
        row.phase_ns[PHASE_SYNC] = STORE_NULL;
    if (sb->trains && sb->emitted <= EARLY_STEPS)
        tally_add(&sb->early, tally);
    if (sb->sink.step)
        sb->sink.step(sb->sink.context, &row);
}

/* Optimizers are numbered from 0 by the hooks, so the common ids have a slot of their own. */
static uint32_t slot_of(uint32_t id)
{
    const uint32_t half = MAX_OPTIMIZERS / 2;
    return id < half ? id : half + (id * 2654435761u) % half;
}

static bool in_round(const struct step_builder *sb, const struct id_list *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        if (sb->optimizers[slot_of(ids->ids[i])].round == sb->round_number)
            return true;
    return false;
}

static void enter_round(struct step_builder *sb, const struct id_list *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        sb->optimizers[slot_of(ids->ids[i])].round = sb->round_number;
}

static uint64_t leader_bit(const struct step_builder *sb)
{
    return 1ull << (sb->round_leader % 64);
}

static void emit_round(struct step_builder *sb)
{
    sb->last_round_segments = sb->round.segments;
    struct tally whole = sb->round;
    sb->round = (struct tally){0};
    sb->round_number++;
    step_emit(sb, &whole);
}

static void start_round(struct step_builder *sb, const struct id_list *ids)
{
    sb->round_leader = ids->count ? slot_of(ids->ids[0]) : 0;
    enter_round(sb, ids);
}

static void confirm_doubt(struct step_builder *sb)
{
    for (size_t i = 0; i < sb->doubt_ids.count; i++)
        sb->optimizers[slot_of(sb->doubt_ids.ids[i])].with |= leader_bit(sb);
    enter_round(sb, &sb->doubt_ids);
    tally_add(&sb->round, &sb->doubt);
    sb->doubt = (struct tally){0};
    sb->doubt_ids.count = 0;
}

static bool same_optimizer(const struct id_list *a, const struct id_list *b)
{
    return a->count > 0 && b->count > 0 && a->ids[0] == b->ids[0];
}

static void settle_doubt(struct step_builder *sb, const struct id_list *next)
{
    if (!same_optimizer(&sb->doubt_ids, next)) {
        confirm_doubt(sb);
        return;
    }
    emit_round(sb);
    start_round(sb, &sb->doubt_ids);
    sb->round = sb->doubt;
    sb->doubt = (struct tally){0};
    sb->doubt_ids.count = 0;
}

static void take_early_steps_back(struct step_builder *sb)
{
    if (sb->emitted == 0 || sb->emitted > EARLY_STEPS)
        return;
    if (sb->sink.drop_steps)
        sb->sink.drop_steps(sb->sink.context);
    tally_add(&sb->early, &sb->round);
    sb->round = sb->early;
    sb->emitted = 0;
}

/* Decides which round the segment belongs to, before its phases are added up: its spans carry the
 * number of the step, which is the number of steps emitted by then. */
void rounds_begin(struct step_builder *sb, const struct segment *segment)
{
    const struct id_list *ids = &segment->optimizers;
    sb->into_doubt = false;
    if (sb->round_number == 0)
        sb->round_number = 1;
    if (segment->is_step) {
        if (sb->doubt.segments)
            confirm_doubt(sb);
        if (!sb->early_settled)
            take_early_steps_back(sb);
        sb->early_settled = true;
        return;
    }
    if (sb->doubt.segments)
        settle_doubt(sb, ids);
    if (sb->round.segments && in_round(sb, ids))
        emit_round(sb);
    if (!sb->round.segments) {
        start_round(sb, ids);
    } else if (ids->count && sb->optimizers[slot_of(ids->ids[0])].with & leader_bit(sb)) {
        enter_round(sb, ids);
    } else {
        sb->into_doubt = true;
        sb->doubt_ids.count = 0;
        for (size_t i = 0; i < ids->count; i++)
            if (id_list_add(&sb->doubt_ids, ids->ids[i]) < 0)
                break; /* then fewer optimizers are remembered: the round may end later */
    }
}

void rounds_add(struct step_builder *sb, const struct segment *segment, const struct tally *tally)
{
    tally_add(sb->into_doubt ? &sb->doubt : &sb->round, tally);
    if (segment->is_step)
        emit_round(sb);
}

void rounds_flush(struct step_builder *sb)
{
    if (sb->doubt.segments)
        confirm_doubt(sb);
    if (sb->round.segments && !sb->explicit_steps)
        emit_round(sb);
}
