/* check.h: the items of `leat check`. check_python.c and check_machine.c add them, cmd_check.c
 * prints them. Every item that is not CHECK_OK has a hint how to change that. */
#ifndef LEAT_CLI_CHECK_H
#define LEAT_CLI_CHECK_H

#include "base/json.h"

enum check_state {
    CHECK_OK,
    CHECK_LIMITED, /* works, with limits */
    CHECK_MISSING
};

enum check_group { CHECK_TRAINING, CHECK_MACHINE, CHECK_KERNEL, CHECK_GROUPS };

struct check_item {
    const char *name;
    enum check_group group;
    enum check_state state;
    int needed;     /* `leat run` gives no verdict without it */
    char text[512]; /* what was found; no newline */
    char way[256];  /* what to do about it; "" when CHECK_OK */
    json_t *facts;  /* owned object: the same in figures, for --json */
};

struct check {
    struct check_item items[24];
    int count;
};

/* Adds an item. Never NULL: the array holds more than all there are. */
struct check_item *check_add(struct check *check, enum check_group group, const char *name);
/* Set state, text and way. */
void check_ok(struct check_item *item, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void check_limited(struct check_item *item, const char *way, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void check_missing(struct check_item *item, const char *way, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A figure for --json; takes the reference of `value`. */
void check_fact(struct check_item *item, const char *name, json_t *value);

/* python, torch, leat. `python` is the value of --python, or NULL. */
void check_python(struct check *check, const char *python);
/* All that does not depend on Python. */
void check_machine(struct check *check);

#endif
