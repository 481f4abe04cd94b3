/* gpu_clock.c: see gpu_clock.h.
 *
 * Events lie in a ring. A stretch reaches from one to the next; what is known of it stands with the
 * later of the two. The oldest are read when a step begins or ends, as far as the device has come:
 * asking for the time between two events says at once whether both have passed.
 *
 *     read ─►  E0 ──work── E1 ──quiet── E2 ──work── E3 ...  ◄─ put
 *
 * One thread at a time has the clock (`busy`); another that comes meanwhile leaves it alone.
 */
#include "probe/gpu_clock.h"

#include <dlfcn.h>
#include <string.h>

enum {
    EVENTS = 512,
    SITES = 8,            /* of each phase that are remembered */
    GAP_US = 250,         /* shorter pauses between calls are the host at work */
    COPY_BYTES = 1 << 16, /* smaller copies are beats: two events would cost as much as the copy */
    WARM_STEPS = 3,       /* left out: libraries load and the allocator grows in them */
    FIRST_STEPS = 8,      /* after those, that are followed at any cost: a short run has no more */
    COST_SHARE = 800,     /* at most this part of the time is spent here */
    CREDIT_US = 500,      /* of it, that may be saved up: a pause is no part of what follows */
    COST_PART = 10,       /* of a gap, 25 us: who takes longer was stopped by somebody else, */
    USUAL_PART = 50,      /* or waited for room behind a device that is at work: 5 us count */
    BEAT_NS = 20,         /* of a beat's own time, which is too short to be measured each time */
    NOT_READY = 600,      /* CUDA_ERROR_NOT_READY */
    NO_SITE = 0
};

/* Moments at which the stream is asked. On its way to the device and back a kernel is in the dark:
 * on an H200 an empty one was seen to be done 5.2 us after its launch had returned, and takes 1.5.
 * It is longer on a busy host, so it is measured. */
enum {
    DARK_NS = 3000, /* at least, and before it is known */
    MOST_DARK_NS = 20000,
    DARKS = 5,       /* the last measured, of which the median counts */
    DARK_EVERY = 16, /* empty streams, once there are so many: each costs the host its dark time */
    MOMENT_NS = 2000000 /* between two, on average: what each stands for */
};

enum stretch {
    STRETCH_FIRST, /* none: what came before was not followed */
    STRETCH_WORK,
    STRETCH_QUIET, /* nothing was launched: all of it is idle */
    STRETCH_GAP    /* work, then nothing for `quiet_ns`: no more than that is idle */
};

struct entry {
    void *event;
    enum stretch stretch;
    enum leat_clock_phase charge;
    uint64_t quiet_ns; /* of the host */
};

/* Device time of a phase of which no events tell whether it was idle; of how much of it the stream
 * said so. */
struct unsure {
    uint64_t work_ns, empty_ns;
};

struct gpu_clock gpu_clock;
__thread struct gpu_clock_thread gpu_clock_thread;

/* All of it belongs to whoever has set `busy`, but for `capturing`. */
static struct {
    atomic_flag busy;
    bool broken, continuous, marked_input;
    enum leat_clock_phase phase, outer; /* outer: around a collective */
    int steps;
    uint64_t put, read; /* counts of entries; the entry before `read` is still there */
    uint64_t marked;    /* those known to be of a step; what comes after the last one is of none */
    struct entry ring[EVENTS];
    uint64_t event_ticks; /* when the last event was put */
    uint64_t alloc_ticks; /* spent in the allocator since then */
    uint64_t begin_ns, begin_ticks;
    uint64_t step_ticks; /* when the step began */
    uint64_t cost_ticks; /* spent here since then */
    double credit_ticks; /* that may be spent; below nothing: owed */
    double ns_per_tick;
    uint32_t sites[LEAT_CLOCK_PHASES_COUNT + 1][SITES]; /* the last: skipped */
    uint32_t sites_learned[LEAT_CLOCK_PHASES_COUNT + 1];
    struct leat_clock_total totals[LEAT_CLOCK_PHASES_COUNT];
    struct unsure unsure[LEAT_CLOCK_PHASES_COUNT];
    void *dark_event;
    uint64_t dark[DARKS]; /* ticks, of which `dark_ticks` is the median; measured so far: `darks` */
    uint64_t dark_ticks;
    uint32_t darks, empty_streams;
    uint64_t random;
    _Atomic int capturing;
} own = {.busy = ATOMIC_FLAG_INIT};

/* ---- the driver --------------------------------------------------------------------------- */

static struct {
    int (*create)(void **event, unsigned flags);
    int (*record)(void *event, void *stream);
    int (*elapsed)(float *ms, void *from, void *to);
    int (*capturing)(void *stream, int *status);
    int (*query)(void *stream);
    int (*seen)(void *event);
} driver;

static bool find_driver(void)
{
    void *handle = driver.create ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (handle) {
        *(void **)&driver.create = dlsym(handle, "cuEventCreate");
        *(void **)&driver.record = dlsym(handle, "cuEventRecord");
        *(void **)&driver.elapsed = dlsym(handle, "cuEventElapsedTime");
        *(void **)&driver.capturing = dlsym(handle, "cuStreamIsCapturing");
        *(void **)&driver.query = dlsym(handle, "cuStreamQuery");
        *(void **)&driver.seen = dlsym(handle, "cuEventQuery");
    }
    bool found = driver.create && driver.record && driver.elapsed && driver.capturing &&
                 driver.query && driver.seen;
    if (!found) {
        driver.create = NULL;
        dlerror(); /* nobody else's */
    }
    return found;
}

/* ---- who has the clock -------------------------------------------------------------------- */

static bool take_clock(uint64_t *ret_start)
{
    if (atomic_flag_test_and_set_explicit(&own.busy, memory_order_acquire))
        return false;
    *ret_start = call_ticks();
    return true;
}

static void leave_clock(uint64_t start)
{
    uint64_t spent = call_ticks() - start, gap = atomic_load(&gpu_clock.gap_ticks);
    own.cost_ticks += spent < gap / COST_PART ? spent : gap / USUAL_PART;
    atomic_flag_clear_explicit(&own.busy, memory_order_release);
}

static void stop_clock(void)
{
    own.continuous = false;
    atomic_store(&gpu_clock.on, false);
}

/* The driver has refused something: the program may have reset the device, or uses several. */
static void end_clock(void)
{
    own.broken = true;
    stop_clock();
}

static uint64_t to_ns(uint64_t ticks)
{
    return (uint64_t)((double)ticks * own.ns_per_tick);
}

/* ---- where gaps begin ----------------------------------------------------------------------- */

static void learn_site(uint32_t beat)
{
    uint32_t *sites = own.sites[own.phase];
    for (int i = 0; i < SITES; i++)
        if (sites[i] == beat)
            return;
    sites[own.sites_learned[own.phase]++ % SITES] = beat;
}

static void expect_site(uint32_t beat)
{
    uint32_t next = NO_SITE;
    for (int i = 0; i < SITES; i++) {
        uint32_t site = own.sites[own.phase][i];
        if (site > beat && (next == NO_SITE || site < next))
            next = site;
    }
    atomic_store(&gpu_clock.site, next);
}

/* ---- putting events ----------------------------------------------------------------------- */

/* Whether nothing that is done to the stream becomes part of a graph. */
static bool is_free(void)
{
    int status = 0;
    if (atomic_load(&own.capturing) > 0)
        return false;
    if (driver.capturing(atomic_load(&gpu_clock.stream), &status) != 0) {
        end_clock();
        return false;
    }
    return status == 0;
}

static bool may_record(void)
{
    return own.put - own.read < EVENTS - 1 && is_free(); /* the one before `read` is still needed */
}

/* Whom the time since the last event is charged to. */
static enum leat_clock_phase blame(uint64_t quiet)
{
    if (own.alloc_ticks > quiet / 2)
        return LEAT_CLOCK_ALLOCATOR;
    if (own.phase == LEAT_CLOCK_COLLECTIVE)
        return LEAT_CLOCK_COLLECTIVE;
    if (atomic_load(&gpu_clock.drained) && quiet <= atomic_load(&gpu_clock.gap_ticks))
        return LEAT_CLOCK_SYNC;
    return own.phase;
}

static bool stream_is_empty(void)
{
    int result = driver.query(atomic_load(&gpu_clock.stream));
    if (result != 0 && result != NOT_READY)
        end_clock();
    return result == 0;
}

static uint64_t dark_ticks(void)
{
    uint64_t least = (uint64_t)(DARK_NS / own.ns_per_tick);
    return own.dark_ticks > least ? own.dark_ticks : least;
}

static uint64_t median_dark(void)
{
    uint64_t sorted[DARKS] = {0};
    for (int i = 0; i < DARKS; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > own.dark[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = own.dark[i];
    }
    return sorted[DARKS / 2];
}

static bool record_event(void **event)
{
    if ((*event || driver.create(event, 0) == 0) &&
        driver.record(*event, atomic_load(&gpu_clock.stream)) == 0)
        return true;
    end_clock();
    return false;
}

/* When the stream is empty. An event takes no time there, so until it is seen all is dark. */
static void measure_dark(void)
{
    uint64_t most = (uint64_t)(MOST_DARK_NS / own.ns_per_tick);
    if (own.darks >= DARKS && ++own.empty_streams % DARK_EVERY)
        return;
    do {
        if (!record_event(&own.dark_event))
            return;
        uint64_t start = call_ticks(), took = 0;
        for (int result = NOT_READY; result == NOT_READY && took < most;) {
            result = driver.seen(own.dark_event);
            took = call_ticks() - start;
        }
        own.dark[own.darks++ % DARKS] = took;
    } while (own.darks < DARKS);
    own.dark_ticks = median_dark();
}

/* Ends the stretch since the last event with a new one. */
static void put_event(uint64_t now, enum stretch stretch, enum leat_clock_phase charge,
                      uint64_t quiet)
{
    struct entry *e = &own.ring[own.put % EVENTS];
    if (!may_record()) {
        own.continuous = false;
        return;
    }
    if (!record_event(&e->event))
        return;
    if (atomic_load(&gpu_clock.drained))
        measure_dark();
    e->stretch = own.continuous ? stretch : STRETCH_FIRST;
    e->charge = charge;
    e->quiet_ns = to_ns(quiet);
    own.put++;
    own.continuous = true;
    own.event_ticks = now;
    own.alloc_ticks = 0;
    atomic_store(&gpu_clock.fresh, 0);
    atomic_store(&gpu_clock.drained, false);
}

/* Whether it was at a moment that has come: what had ended by then is seen when it is dark no more.
 */
static bool was_empty(uint64_t moment)
{
    uint64_t seen = moment + dark_ticks();
    bool empty = stream_is_empty();
    while (!empty && call_ticks() < seen)
        ;
    return empty || stream_is_empty();
}

/* At the end of a gap: a device that still has work had some all the while. So it is where the host
 * is so far ahead that a launch, of those that the probe does not see, had to wait for room. */
static bool was_idle(void)
{
    return !is_free() || was_empty(call_ticks());
}

/* An event now; what it ends is seen from the beats. */
static void put_here(uint64_t now)
{
    uint64_t last = atomic_load(&gpu_clock.last_ticks), pause = now > last ? now - last : 0;
    if (atomic_load(&gpu_clock.fresh) == 0) {
        put_event(now, STRETCH_QUIET, blame(pause), now - own.event_ticks);
    } else if (pause > atomic_load(&gpu_clock.gap_ticks)) {
        bool idle = was_idle();
        if (idle)
            learn_site(atomic_load(&gpu_clock.beats));
        put_event(now, idle ? STRETCH_GAP : STRETCH_WORK, idle ? blame(pause) : own.phase, pause);
    } else {
        put_event(now, STRETCH_WORK, own.phase, 0);
    }
}

void gpu_clock_pause_ends(uint64_t now)
{
    uint64_t start;
    if (!take_clock(&start))
        return;
    put_here(now);
    leave_clock(start);
}

void gpu_clock_site_comes(void)
{
    uint64_t start;
    if (!take_clock(&start))
        return;
    expect_site(atomic_load(&gpu_clock.beats));
    put_here(start);
    leave_clock(start);
}

/* ---- asking the stream ---------------------------------------------------------------------- */

/* Anything between nothing and twice the mean: xorshift64, of no secret. */
static uint64_t random_ticks(double mean)
{
    uint64_t x = own.random ? own.random : call_ticks() | 1;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    own.random = x;
    return (uint64_t)(2 * mean * (double)(x >> 11) * 0x1p-53);
}

/* Moments do not depend on when they were asked for, nor on whether the clock was on: so each
 * stands for the same time. */
static void next_moment(void)
{
    uint64_t now = call_ticks(), moment = atomic_load(&gpu_clock.moment);
    double mean = MOMENT_NS / own.ns_per_tick;
    if (moment == 0 || now > moment + (uint64_t)(1000 * mean))
        moment = now;
    while (moment <= now)
        moment += 1 + random_ticks(mean);
    atomic_store(&gpu_clock.moment, moment);
    atomic_store(&gpu_clock.moment_in_call, false);
}

static void ask_stream(void)
{
    /* A moment within a launch is asked for before the next one, when no more has been launched. */
    uint64_t moment = atomic_load(&gpu_clock.moment), start = call_ticks();
    bool empty = was_empty(atomic_load(&gpu_clock.moment_in_call) ? start : moment);
    if (call_ticks() - start > 2 * dark_ticks())
        return; /* somebody else had the core: the device has come further than we ask for */
    own.totals[LEAT_CLOCK_LAUNCH].n++;
    own.unsure[own.phase].empty_ns += empty ? MOMENT_NS : 0;
    if (empty)
        measure_dark();
}

/* A moment before the last event belongs to what that has ended. */
static void ask_for_moment(void)
{
    if (own.continuous && atomic_load(&gpu_clock.moment) >= own.event_ticks &&
        own.phase < LEAT_CLOCK_PHASES_COUNT && is_free())
        ask_stream();
    next_moment();
}

void gpu_clock_moment_comes(void)
{
    uint64_t start;
    if (!take_clock(&start))
        return;
    ask_for_moment();
    leave_clock(start);
}

/* A phase ends: is there a moment since its last beat, in time that its event will tell nothing of?
 */
static void ask_for_last_moment(uint64_t now)
{
    uint64_t pause = now - atomic_load(&gpu_clock.last_ticks);
    if (now >= atomic_load(&gpu_clock.moment) && atomic_load(&gpu_clock.fresh) > 0 &&
        pause <= atomic_load(&gpu_clock.gap_ticks) && !atomic_load(&gpu_clock.drained))
        ask_for_moment();
}

/* What the stream said becomes idle time between launches, which is then no longer the phase's. */
static void tell_launches(struct leat_clock_total *totals)
{
    for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++) {
        const struct unsure *u = &own.unsure[k];
        uint64_t idle_ns = u->empty_ns < u->work_ns ? u->empty_ns : u->work_ns;
        totals[k].device_ns -= idle_ns;
        totals[LEAT_CLOCK_LAUNCH].device_ns += idle_ns;
        totals[LEAT_CLOCK_LAUNCH].idle_ns += idle_ns;
    }
}

/* ---- copies, waits, the allocator, captures ------------------------------------------------- */

void gpu_clock_copy_follow(void *stream, uint64_t bytes)
{
    uint64_t start;
    if (!gpu_clock_follows() || stream != gpu_clock_thread.stream)
        return;
    if (bytes < COPY_BYTES) {
        gpu_clock_before(true);
        return;
    }
    if (!take_clock(&start))
        return;
    put_here(start);
    gpu_clock_thread.copying = true;
    leave_clock(start);
}

void gpu_clock_copy_followed(uint64_t now)
{
    uint64_t start;
    if (!gpu_clock_thread.copying) {
        gpu_clock_launched(now);
        return;
    }
    gpu_clock_thread.copying = false;
    if (!take_clock(&start))
        return;
    put_event(start, STRETCH_QUIET, LEAT_CLOCK_H2D, start - own.event_ticks);
    atomic_store(&gpu_clock.last_ticks, start);
    leave_clock(start);
}

void gpu_clock_drain_begins(void)
{
    uint64_t start;
    if (!gpu_clock_follows() || atomic_load(&gpu_clock.fresh) == 0 || !take_clock(&start))
        return;
    put_here(start);
    leave_clock(start);
}

void gpu_clock_drained(void)
{
    if (!gpu_clock_follows())
        return;
    atomic_store(&gpu_clock.last_ticks, call_ticks());
    atomic_store(&gpu_clock.drained, true);
}

void gpu_clock_allocated(uint64_t ticks)
{
    uint64_t start;
    if (!gpu_clock_follows() || !take_clock(&start))
        return;
    own.alloc_ticks += ticks;
    leave_clock(start);
}

void gpu_clock_capture(int change)
{
    atomic_fetch_add(&own.capturing, change);
}

/* ---- reading events ----------------------------------------------------------------------- */

static void add_stretch(const struct entry *e, uint64_t device_ns)
{
    struct leat_clock_total *t = &own.totals[e->charge];
    uint64_t idle = e->stretch == STRETCH_WORK ? 0 : device_ns;
    if (e->stretch == STRETCH_GAP && idle > e->quiet_ns)
        idle = e->quiet_ns;
    if (e->stretch != STRETCH_QUIET)
        own.unsure[e->charge].work_ns += device_ns - idle;
    t->device_ns += device_ns;
    t->idle_ns += idle;
    t->hidden_ns += e->quiet_ns > idle ? e->quiet_ns - idle : 0;
    t->n += e->stretch != STRETCH_WORK;
}

static void read_events(void)
{
    while (own.read < own.marked && atomic_load(&own.capturing) == 0) {
        const struct entry *e = &own.ring[own.read % EVENTS];
        float ms = 0;
        if (e->stretch != STRETCH_FIRST) {
            int result = driver.elapsed(&ms, own.ring[(own.read - 1) % EVENTS].event, e->event);
            if (result == NOT_READY)
                return;
            if (result != 0) {
                end_clock();
                return;
            }
            add_stretch(e, ms > 0 ? (uint64_t)((double)ms * 1e6) : 0);
        }
        own.read++;
    }
}

/* ---- steps and phases ----------------------------------------------------------------------- */

static void set_rate(uint64_t now)
{
    uint64_t ns = clock_now_ns() - own.begin_ns, ticks = now - own.begin_ticks;
    own.ns_per_tick = ns && ticks ? (double)ns / (double)ticks : 1;
    atomic_store(&gpu_clock.gap_ticks, (uint64_t)(GAP_US * 1e3 / own.ns_per_tick));
}

/* A step begins: is there time to follow it? */
static bool is_affordable(uint64_t now)
{
    double most = CREDIT_US * 1e3 / own.ns_per_tick;
    if (own.steps <= WARM_STEPS + FIRST_STEPS)
        own.cost_ticks = 0;
    own.credit_ticks += (double)(now - own.step_ticks) / COST_SHARE - (double)own.cost_ticks;
    own.credit_ticks = own.credit_ticks < most ? own.credit_ticks : most;
    own.step_ticks = now;
    own.cost_ticks = 0;
    return own.credit_ticks >= 0;
}

static void begin_step(uint64_t now)
{
    if (own.steps++ == 0) {
        own.begin_ns = clock_now_ns();
        own.begin_ticks = own.step_ticks = now;
        own.cost_ticks = 0;
        return;
    }
    set_rate(now);
    if (atomic_load(&gpu_clock.on))
        read_events();
    bool on = is_affordable(now) && own.steps > WARM_STEPS && !own.broken && find_driver();
    if (on && atomic_load(&gpu_clock.stream) != gpu_clock_thread.stream) {
        own.continuous = false;
        atomic_store(&gpu_clock.stream, gpu_clock_thread.stream);
    }
    if (!on) {
        stop_clock();
    } else if (!own.continuous) {
        next_moment();
        put_here(now);
    }
    atomic_store(&gpu_clock.on, on && !own.broken);
}

static bool begins_step(enum leat_clock_phase phase)
{
    own.marked_input |= phase == LEAT_CLOCK_INPUT;
    return phase == LEAT_CLOCK_INPUT ||
           (phase == LEAT_CLOCK_OTHER && !own.marked_input && own.phase == LEAT_CLOCK_OPTIMIZER);
}

/* What a mark means: a collective is inside another phase, and of an evaluation it is no news. */
static enum leat_clock_phase phase_meant(enum leat_clock_phase phase)
{
    if (phase == LEAT_CLOCK_COLLECTIVE && own.phase == LEAT_CLOCK_SKIPPED)
        return LEAT_CLOCK_SKIPPED;
    if (phase == LEAT_CLOCK_COLLECTIVE && own.phase != LEAT_CLOCK_COLLECTIVE)
        own.outer = own.phase;
    if (phase == LEAT_CLOCK_RESUMED)
        return own.phase == LEAT_CLOCK_COLLECTIVE ? own.outer : own.phase;
    return phase;
}

void gpu_clock_begin_phase(enum leat_clock_phase phase)
{
    uint64_t start;
    if (!gpu_clock_thread.launched || (unsigned)phase > LEAT_CLOCK_RESUMED || !take_clock(&start))
        return;
    phase = phase_meant(phase);
    if (own.phase == LEAT_CLOCK_SKIPPED || phase == LEAT_CLOCK_SKIPPED)
        own.continuous = false;
    if (phase == LEAT_CLOCK_SKIPPED)
        atomic_store(&gpu_clock.on, false);
    if (atomic_load(&gpu_clock.on)) { /* at once: what follows takes time, too */
        own.cost_ticks += (uint64_t)(atomic_load(&gpu_clock.beats) * BEAT_NS / own.ns_per_tick);
        ask_for_last_moment(start);
        put_here(start);
    }
    if (own.phase != LEAT_CLOCK_INPUT) /* a fetch may have been the one after the last batch */
        own.marked = own.put;
    if (begins_step(phase))
        begin_step(start);
    own.phase = phase;
    atomic_store(&gpu_clock.beats, 0);
    expect_site(0);
    atomic_store(&gpu_clock.last_ticks, call_ticks());
    leave_clock(start);
}

bool gpu_clock_read(struct leat_clock_total ret_totals[LEAT_CLOCK_PHASES_COUNT])
{
    uint64_t start;
    if (!take_clock(&start))
        return false;
    if (gpu_clock_thread.launched && !own.broken) /* after the last step none begins */
        read_events();
    bool any = own.read > 1;
    memcpy(ret_totals, own.totals, sizeof own.totals);
    tell_launches(ret_totals);
    leave_clock(start);
    return any;
}

void gpu_clock_forget(void)
{
    if (own.steps > 0 || atomic_load(&own.capturing)) /* most forks: no page is touched */
        memset(&own, 0, sizeof own);
    atomic_flag_clear(&own.busy);
    if (atomic_load(&gpu_clock.on)) /* most forks: no page is touched */
        atomic_store(&gpu_clock.on, false);
    gpu_clock_thread = (struct gpu_clock_thread){0};
}
