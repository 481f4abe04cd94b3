/* codes.h: the machine-readable part of a finding: its kind and cause, what to do, and what each
 * evidence value is.
 *
 * Rules pass a code; the text that a reader sees comes from these lists or is written beside the
 * code. Tests and tools compare codes, so texts can change freely. A new code is one line here. The
 * code as text is the enum's name in lower case: ACTION_SET_LOADER is "set_loader".
 */
#ifndef LEAT_DIAGNOSE_CODES_H
#define LEAT_DIAGNOSE_CODES_H

/* X(name, label): what a finding is about. The kind as text is its name. */
#define FINDING_KINDS(X)                                                                           \
    X(INPUT_BOUND, "INPUT-BOUND")                                                                  \
    X(H2D_BOUND, "H2D-BOUND")                                                                      \
    X(WAIT_HEAVY, "WAIT-HEAVY")                                                                    \
    X(LAUNCH_BOUND, "LAUNCH-BOUND")                                                                \
    X(COMPUTE_BOUND, "COMPUTE-BOUND")                                                              \
    X(INTERMITTENT_STALL, "INTERMITTENT STALL")                                                    \
    X(INPUT_STRAGGLER, "INPUT STRAGGLER")                                                          \
    X(H2D_STRAGGLER, "H2D STRAGGLER")                                                              \
    X(COMPUTE_STRAGGLER, "COMPUTE STRAGGLER")                                                      \
    X(STRAGGLER, "STRAGGLER")                                                                      \
    X(BALANCED, "BALANCED")                                                                        \
    X(INSUFFICIENT_DATA, "INSUFFICIENT DATA")                                                      \
    X(MEMORY_CREEP, "MEMORY CREEP")                                                                \
    X(MEMORY_RISING, "MEMORY RISING")                                                              \
    X(HIGH_PRESSURE, "HIGH PRESSURE")                                                              \
    X(IMBALANCE, "IMBALANCE")                                                                      \
    X(LOW_GPU_UTILIZATION, "LOW_GPU_UTILIZATION")                                                  \
    X(MODERATE_GPU_UTILIZATION, "MODERATE_GPU_UTILIZATION")                                        \
    X(HIGH_GPU_MEM, "HIGH GPU MEM")                                                                \
    X(HIGH_GPU_TEMP, "HIGH GPU TEMP")                                                              \
    X(THROTTLED, "THROTTLED")                                                                      \
    X(HIGH_CPU, "HIGH CPU")                                                                        \
    X(HIGH_RAM, "HIGH RAM")                                                                        \
    X(SWAPPING, "SWAPPING")                                                                        \
    X(OOM_KILL, "OOM KILL")                                                                        \
    X(SHM_FULL, "SHM FULL")                                                                        \
    X(FD_LIMIT, "FD LIMIT")

enum finding_kind {
#define X(name, label) KIND_##name,
    FINDING_KINDS(X)
#undef X
};

/* X(name): why the input is slow. The cause as text is its name. */
#define CAUSES(X)                                                                                  \
    X(NO_OVERLAP)          /* num_workers=0: nothing is made while the model computes */           \
    X(TOO_FEW_WORKERS)     /* all workers are busy and cores are free */                           \
    X(WORKER_STARTUP)      /* every epoch starts its workers again */                              \
    X(PER_SAMPLE_OVERHEAD) /* samples in memory are fetched one by one */                          \
    X(CPU_OVERSUBSCRIBED)  /* more threads than cores */                                           \
    X(UNEVEN_WORKERS)      /* one worker is slower than the others */                              \
    X(SLOW_STORAGE)        /* workers wait for reads */                                            \
    X(SLOW_SAMPLE)         /* reading, decoding or transforming one sample */                      \
    X(SLOW_COLLATE)        /* joining samples to a batch */                                        \
    X(SLOW_HANDOVER)       /* handing a batch to the training */                                   \
    X(TOO_FEW_THREADS)     /* leat's loader: all threads are busy and cores are free */            \
    X(TOO_FEW_AHEAD)       /* leat's loader: too few batches are made ahead */                     \
    X(SLOW_SAMPLER)        /* leat's loader: indices are drawn in Python */                        \
    X(SLOW_READ)           /* leat's loader: reading samples */                                    \
    X(SLOW_LAYOUT)         /* leat's loader: padding and joining samples */                        \
    X(SLOW_ORDER)          /* leat's loader: choosing the next sample */

enum cause {
    CAUSE_NONE, /* not known, or not about the input */
#define X(name) CAUSE_##name,
    CAUSES(X)
#undef X
};

/* X(name, code): what the finding's action asks the user to do. Arguments, where there are any,
 * are in finding.action_arguments as "name=value,name=value". */
#define ACTIONS(X)                                                                                 \
    X(NOTHING, "nothing")                     /* no change is needed */                            \
    X(FOLLOW_VERDICT, "follow_verdict")       /* verdict=KIND explains this finding */             \
    X(RUN_TRAINING, "run_training")           /* this script trained nothing */                    \
    X(KEEP_PYTHONPATH, "keep_pythonpath")     /* leat's hooks were not loaded */                   \
    X(MARK_STEPS, "mark_steps")               /* leat.step() */                                    \
    X(MARK_INPUT, "mark_input")               /* leat.wrap_loader() or leat.phase("input") */      \
    X(MARK_PHASES, "mark_phases")             /* leat.phase("name") */                             \
    X(RUN_LONGER, "run_longer")               /* too few steps */                                  \
    X(LENGTHEN_STEPS, "lengthen_steps")       /* steps too short to judge */                       \
    X(SET_LOADER, "set_loader")               /* arguments of the DataLoader */                    \
    X(ADD_LOADER, "add_loader")               /* no DataLoader was seen */                         \
    X(INSPECT_LOADER, "inspect_loader")       /* the cause is not known */                         \
    X(INDEX_BATCHES, "index_batches")         /* fetch a whole batch with one index operation */   \
    X(SPEED_UP_SAMPLE, "speed_up_sample")     /* the dataset's __getitem__ */                      \
    X(DECODE_LESS, "decode_less")             /* store decoded or smaller images */                \
    X(SPEED_UP_COLLATE, "speed_up_collate")   /* the user's collate_fn */                          \
    X(RETURN_TENSORS, "return_tensors")       /* samples of Python objects collate slowly */       \
    X(SHRINK_BATCHES, "shrink_batches")       /* many objects or bytes are handed over */          \
    X(USE_FEWER_TENSORS, "use_fewer_tensors") /* few bytes in many tensors are handed over */      \
    X(RELEASE_BATCHES, "release_batches")     /* kept batches of leat's loader are copied */       \
    X(MOVE_DATA, "move_data")                 /* faster storage, or fewer and larger files */      \
    X(READ_NEIGHBOURS, "read_neighbours")     /* order=... reads neighbouring samples */           \
    X(STORE_LESS, "store_less")               /* fewer bytes per sample */                         \
    X(PAD_LESS, "pad_less")                   /* batches of samples of similar length */           \
    X(ORDER_CHEAPLY, "order_cheaply")         /* larger batches or order="quasi" */                \
    X(SHUFFLE_IN_LEAT, "shuffle_in_leat")     /* no Python sampler */                              \
    X(ADAPT_AHEAD, "adapt_ahead")             /* leat chooses how many batches are made ahead */   \
    X(RAISE_BUDGET, "raise_budget")           /* memory_budget=... */                              \
    X(BALANCE_WORKERS, "balance_workers")     /* samples or shards are uneven */                   \
    X(LIMIT_THREADS, "limit_threads")         /* threads inside of workers */                      \
    X(PIN_AND_OVERLAP, "pin_and_overlap")     /* pin_memory=True and non_blocking=True */          \
    X(COPY_ASYNC, "copy_async")               /* non_blocking=True */                              \
    X(COPY_ON_STREAM, "copy_on_stream")       /* a CUDA stream for copies */                       \
    X(MERGE_COPIES, "merge_copies")           /* many small copies into one */                     \
    X(AVOID_SYNC, "avoid_sync")               /* .item() and the like in every step */             \
    X(REDUCE_PHASE, "reduce_phase")           /* phase=NAME: less often, or elsewhere */           \
    X(SAVE_LESS_OFTEN, "save_less_often")     /* checkpoints */                                    \
    X(EVALUATE_LESS_OFTEN, "evaluate_less_often")                                                  \
    X(KEEP_WORKERS, "keep_workers")     /* persistent_workers=True */                              \
    X(CACHE_DATA, "cache_data")         /* page faults read from storage */                        \
    X(INSPECT_STEP, "inspect_step")     /* step=N stalls; why is not known */                      \
    X(SPEED_UP_PHASE, "speed_up_phase") /* phase=NAME of the model */                              \
    X(REDUCE_PYTHON, "reduce_python")   /* phase=NAME has Python between launches */               \
    X(LAUNCH_FEWER_KERNELS, "launch_fewer_kernels")                                                \
    X(INSPECT_RANK, "inspect_rank") /* rank=N, and phase=NAME where it is known */                 \
    X(EVALUATE_ON_ALL_RANKS, "evaluate_on_all_ranks")                                              \
    X(STOP_PROCESSES, "stop_processes") /* other programs use the CPU */                           \
    X(FREE_CORES, "free_cores")         /* to feed the GPU */                                      \
    X(USE_LESS_HOST_MEMORY, "use_less_host_memory")                                                \
    X(USE_LESS_DEVICE_MEMORY, "use_less_device_memory")                                            \
    X(DROP_REFERENCES, "drop_references") /* tensors kept from step to step */                     \
    X(STORE_IN_ARRAYS, "store_in_arrays") /* Python objects are copied into each worker */         \
    X(USE_LEAT_LOADER, "use_leat_loader") /* leat.DataLoader, maybe with device="cuda" */          \
    X(CHECK_COOLING, "check_cooling")                                                              \
    X(CHECK_POWER, "check_power")                                                                  \
    X(RAISE_SHM, "raise_shm")           /* size of /dev/shm */                                     \
    X(RAISE_FD_LIMIT, "raise_fd_limit") /* ulimit -n */

enum action {
    ACTION_NONE, /* not set yet: diagnose() refuses such a finding */
#define X(name, code) ACTION_##name,
    ACTIONS(X)
#undef X
};

/* X(name, code, what, unit): one value that a finding rests on. */
#define EVIDENCE(X)                                                                                \
    /* the step */                                                                                 \
    X(STEP_TIME, "step_time", "step", "ms")                                                        \
    X(PHASE_TIME, "phase_time", "phase", "ms") /* named after the phase */                         \
    X(SPAN_TIME, "span_time", "span", "ms")    /* named after the user's phase */                  \
    X(INPUT_TIME, "input_time", "input per step", "ms")                                            \
    X(H2D_TIME, "h2d_time", "h2d per step", "ms")                                                  \
    X(SYNC_TIME, "sync_time", "sync per step", "ms")                                               \
    X(OTHER_TIME, "other_time", "other per step", "ms")                                            \
    X(INPUT_SHARE, "input_share", "input share", "ratio")                                          \
    X(H2D_SHARE, "h2d_share", "h2d share", "ratio")                                                \
    X(WAIT_SHARE, "wait_share", "sync + other share", "ratio")                                     \
    X(COMPUTE_SHARE, "compute_share", "compute share", "ratio")                                    \
    X(GPU_BUSY, "gpu_busy", "GPU busy", "ratio")                                                   \
    X(GPU_IDLE, "gpu_idle", "GPU idle meanwhile", "ratio")                                         \
    X(GPU_IDLE_IN_COMPUTE, "gpu_idle_in_compute", "GPU idle in compute", "ratio")                  \
    X(WAITS, "waits", "waits per step", "count")                                                   \
    X(COPIES, "copies", "copies waited for per step", "count")                                     \
    X(COPY_RATE, "copy_rate", "copy rate", "GB/s")                                                 \
    X(STEPS, "steps", "steps", "steps")                                                            \
    X(KEPT_STEPS, "kept_steps", "kept steps", "steps")                                             \
    X(LEAT_COST, "leat_cost", "leat's cost per step", "ms")                                        \
    /* stalls and stragglers */                                                                    \
    X(STALLED_SHARE, "stalled_share", "share of time in stalled steps", "ratio")                   \
    X(STALLED_STEPS, "stalled_steps", "stalled steps", "steps")                                    \
    X(STALL_PERIOD, "stall_period", "steps between stalls", "steps")                               \
    X(USUAL_STEP, "usual_step", "usual step", "ms")                                                \
    X(STALLS_AT_EPOCH_START, "stalls_at_epoch_start", "the start of an epoch", "ratio")            \
    X(STALLS_AT_CHECKPOINT, "stalls_at_checkpoint", "a checkpoint", "ratio")                       \
    X(STALLS_AFTER_EVALUATION, "stalls_after_evaluation", "the first step after an evaluation",    \
      "ratio")                                                                                     \
    X(STALLS_AT_WORKER_START, "stalls_at_worker_start", "the start of worker processes", "ratio")  \
    X(STALLS_AT_PAGE_FAULTS, "stalls_at_page_faults",                                              \
      "major page faults (data is read from storage)", "ratio")                                    \
    X(TIME_WITHOUT_CPU, "time_without_cpu", "share of the lost time without CPU", "ratio")         \
    X(COST_TO_OTHERS, "cost_to_others", "cost to the other ranks", "ms")                           \
    X(SHARE_OF_OTHERS, "share_of_others", "share of the other ranks' step", "ratio")               \
    X(LATE_STEPS, "late_steps", "late steps", "steps")                                             \
    X(MEDIAN_RANK_TIME, "median_rank_time", "the same in the median rank", "ms")                   \
    /* the loader */                                                                               \
    X(NUM_WORKERS, "num_workers", "num_workers", "workers")                                        \
    X(PIN_MEMORY, "pin_memory", "pin_memory", "flag")                                              \
    X(SAMPLES_PER_BATCH, "samples_per_batch", "samples per batch", "samples")                      \
    X(WAIT_PER_BATCH, "wait_per_batch", "wait per batch", "ms")                                    \
    X(FIRST_WAIT, "first_wait", "first-batch wait per epoch", "ms")                                \
    X(FIRST_WAIT_SHARE, "first_wait_share", "input time spent on the first batch of an epoch",     \
      "ratio")                                                                                     \
    X(WORKERS_BUSY, "workers_busy", "share of time the workers were busy", "ratio")                \
    X(WORKERS_NEEDED, "workers_needed", "workers needed", "workers")                               \
    X(WORKER_CORES, "worker_cores", "cores per worker", "cores")                                   \
    X(WORKER_QUEUED, "worker_queued", "share of time a worker was ready without a core", "ratio")  \
    X(TRAINING_QUEUED, "training_queued", "share of time the training was ready without a core",   \
      "ratio")                                                                                     \
    X(WORKER_THREADS, "worker_threads", "threads of one worker, at most", "threads")               \
    X(SLOWEST_WORKER, "slowest_worker", "time per batch of the slowest worker", "ms")              \
    X(USUAL_WORKER, "usual_worker", "time per batch of the usual worker", "ms")                    \
    X(MAKE_TIME, "make_time", "time per batch of a worker", "ms")                                  \
    X(SAMPLE_TIME, "sample_time", "time per sample", "ms")                                         \
    X(FETCH_TIME, "fetch_time", "fetch per batch", "ms")                                           \
    X(COLLATE_TIME, "collate_time", "collate per batch", "ms")                                     \
    X(PICKLE_TIME, "pickle_time", "pickle per batch", "ms")                                        \
    X(UNPICKLE_TIME, "unpickle_time", "unpickle per batch", "ms")                                  \
    X(PIN_TIME, "pin_time", "pin per batch", "ms")                                                 \
    X(PIPE_BYTES, "loader_view_pipe_bytes", "bytes through the pipe per batch", "bytes")           \
    X(READ_SHARE, "read_share", "share of making a batch spent in reads", "ratio")                 \
    X(FAULT_SHARE, "fault_share", "share of making a batch spent on page faults", "ratio")         \
    X(SAMPLE_READ_SHARE, "sample_read_share", "share of a sample spent in reads", "ratio")         \
    X(SAMPLE_DECODE_SHARE, "sample_decode_share", "share of a sample spent in decoding", "ratio")  \
    X(STORAGE_RATE, "storage_rate", "read rate", "MB/s")                                           \
    X(READ_CALLS, "read_calls", "read calls", "calls/s")                                           \
    X(MAJOR_FAULTS, "major_faults", "major faults", "faults/s")                                    \
    /* leat's own loader */                                                                        \
    X(THREADS_BUSY, "threads_busy", "share of time leat's threads were busy", "ratio")             \
    X(ENGINE_THREADS, "engine_threads", "threads", "threads")                                      \
    X(ENGINE_READ_TIME, "engine_read_time", "read per batch", "ms")                                \
    X(ENGINE_LAYOUT_TIME, "engine_layout_time", "layout per batch", "ms")                          \
    X(ENGINE_ORDER_TIME, "engine_order_time", "order per batch", "ms")                             \
    X(REQUESTS_NOT_READY, "requests_not_ready", "requests that found no batch ready", "ratio")     \
    X(WAIT_OUTSIDE_ENGINE, "wait_outside_engine", "share of the wait outside leat's threads",      \
      "ratio")                                                                                     \
    X(THREAD_READ_RATE, "thread_read_rate", "read rate of one thread", "MB/s")                     \
    X(BATCHES_AHEAD, "batches_ahead", "batches ahead", "batches")                                  \
    /* the machine */                                                                              \
    X(IDLE_CORES, "idle_cores", "idle cores", "cores")                                             \
    X(FOREIGN_CORES, "foreign_cores", "cores used by other programs", "cores")                     \
    X(READY_THREADS, "ready_threads", "running or ready threads per core", "threads")              \
    X(MACHINE_CPU, "machine_cpu", "machine CPU use", "ratio")                                      \
    X(RUN_CPU, "run_cpu", "CPU use of this run", "ratio")                                          \
    X(UTILIZATION, "utilization", "mean utilization", "ratio")                                     \
    X(TEMPERATURE, "temperature", "highest temperature", "C")                                      \
    X(TEMPERATURE_LIMIT, "temperature_limit", "temperature limit", "C")                            \
    X(THROTTLED_SHARE, "throttled_share", "share of samples throttled", "ratio")                   \
    /* memory */                                                                                   \
    X(MEMORY_USED, "memory_used", "memory used", "bytes")                                          \
    X(MEMORY_TOTAL, "memory_total", "total memory", "bytes")                                       \
    X(MEMORY_AVAILABLE, "memory_available", "memory available", "bytes")                           \
    X(CAPACITY, "capacity", "capacity", "bytes")                                                   \
    X(PEAK, "peak", "peak", "bytes")                                                               \
    X(PEAK_ALLOCATED, "peak_allocated", "peak allocated", "bytes")                                 \
    X(PEAK_OF_RUN, "peak_of_run", "peak memory of the run", "bytes")                               \
    X(PEAK_OF_MEDIAN_RANK, "peak_of_median_rank", "peak of the median rank", "bytes")              \
    X(GROWTH_PER_STEP, "growth_per_step", "growth per step", "bytes")                              \
    X(GROWTH, "growth", "growth", "bytes")                                                         \
    X(SWAPPED_IN, "swapped_in", "swapped in", "bytes/s")                                           \
    X(SWAPPED_OUT, "swapped_out", "swapped out", "bytes/s")                                        \
    X(SHM_USED, "shm_used", "shared memory used", "bytes")                                         \
    /* processes */                                                                                \
    X(OPEN_FILES, "open_files", "open files", "files")                                             \
    X(KILLED_PROCESSES, "killed_processes", "processes killed by the kernel", "processes")         \
    X(FAILED_PROCESSES, "failed_processes", "processes that failed with it", "processes")          \
    X(SILENT_PROCESSES, "silent_processes", "processes that could not report", "processes")        \
    X(REPORTING_PROCESSES, "reporting_processes", "processes that reported", "processes")          \
    X(TORCH_PROCESSES, "torch_processes", "processes that imported torch", "processes")            \
    X(PROCESSES_WITHOUT_FETCH, "processes_without_fetch", "processes without the fetch signal",    \
      "processes")

enum evidence_code {
#define X(name, code, what, unit) EVIDENCE_##name,
    EVIDENCE(X)
#undef X
};

const char *finding_kind_text(enum finding_kind kind);   /* "INPUT_BOUND" */
const char *finding_kind_label(enum finding_kind kind);  /* "INPUT-BOUND" */
const char *cause_text(enum cause cause);                /* "NO_OVERLAP"; NULL for CAUSE_NONE */
const char *action_text(enum action action);             /* "set_loader"; "" for ACTION_NONE */
const char *evidence_code_text(enum evidence_code code); /* "step_time" */

#endif
