/* names.h: text values of run.db that rules compare, as enums. Each list gives the enum and its
 * texts, so that a new value is one line. A text that is not in the list becomes the last member:
 * run.db may have been written by a newer leat. */
#ifndef LEAT_FACTS_NAMES_H
#define LEAT_FACTS_NAMES_H

#define LOADER_USES(X) /* loaders.use: what the batches of a loader are for */                     \
    X(LOADER_TRAIN, "train")                                                                       \
    X(LOADER_EVAL, "eval")                                                                         \
    X(LOADER_INFER, "infer")
#define PROCESS_ROLES(X) /* processes.role */                                                      \
    X(ROLE_MAIN, "main")                                                                           \
    X(ROLE_WORKER, "worker")                                                                       \
    X(ROLE_OTHER, "other")
#define ENGINE_ORDERS(X) /* engines.ordering */                                                    \
    X(ENGINE_SEQUENTIAL, "sequential")                                                             \
    X(ENGINE_FULL, "full")                                                                         \
    X(ENGINE_QUASI, "quasi")                                                                       \
    X(ENGINE_WINDOW, "window")                                                                     \
    X(ENGINE_GIVEN, "given") /* indices come from Python */
#define ENGINE_SOURCES(X)    /* the first word of engines.source, where a rule asks for it */      \
    X(ENGINE_NPY, "npy")                                                                           \
    X(ENGINE_TOKENS, "tokens")                                                                     \
    X(ENGINE_LMDB, "lmdb")                                                                         \
    X(ENGINE_HDF5, "hdf5")                                                                         \
    X(ENGINE_TAR, "tar")
#define CUDA_LINE_KINDS(X) /* what a line of the training loop does to the device (facts.c) */     \
    X(CUDA_LINE_PAGEABLE_COPY, "pageable_copy")                                                    \
    X(CUDA_LINE_BLOCKING_COPY, "blocking_copy")                                                    \
    X(CUDA_LINE_WAIT, "wait")
#define SPAN_KINDS(X) /* span_totals.name: those that leat itself names */                         \
    X(SPAN_CHECKPOINT, "checkpoint")                                                               \
    X(SPAN_EVAL, "eval")                                                                           \
    X(SPAN_COMPILE, "compile")                                                                     \
    X(SPAN_EPOCH_START, "epoch_start")
#define RUN_ENDS(X) /* meta: ended */                                                              \
    X(RUN_COMPLETED, "completed")                                                                  \
    X(RUN_FAILED, "failed")                                                                        \
    X(RUN_KILLED, "killed")                                                                        \
    X(RUN_INTERRUPTED, "interrupted")

#define X(name, text) name,
enum loader_use { LOADER_USES(X) LOADER_USE_UNKNOWN };
enum process_role { PROCESS_ROLES(X) ROLE_UNKNOWN };
enum engine_order { ENGINE_ORDERS(X) ENGINE_ORDER_UNKNOWN };
enum engine_source { ENGINE_SOURCES(X) ENGINE_SOURCE_OTHER };
enum cuda_line_kind { CUDA_LINE_KINDS(X) CUDA_LINE_NEITHER };
enum span_kind { SPAN_KINDS(X) SPAN_OF_USER };
enum run_end { RUN_ENDS(X) RUN_END_UNKNOWN };
#undef X

/* The texts, in the order of the enum; the last member's is "". */
extern const char *const loader_use_names[],
    *const process_role_names[], *const engine_order_names[], *const engine_source_names[],
                                                                  *const cuda_line_kind_names[],
                                                                      *const span_kind_names[],
                                                                          *const run_end_names[];
extern const char *const part_names[];        /* enum leat_part, input_parts.part */
extern const char *const cuda_class_names[];  /* enum leat_cuda_class, cuda_calls.class */
extern const char *const clock_phase_names[]; /* enum leat_clock_phase, gpu_clock.phase */

/* The index of `text` in one of these lists; that of the last member when it is not there or NULL.
 */
int name_index(const char *const *names, const char *text);

#endif
