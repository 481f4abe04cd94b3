/* compare_prediction.c: was the prediction of the run before right? The run after shows it if it
 * made the predicted change and no other, so the settings of the loader that feeds the steps are
 * compared with the predicted ones. A change of the user's code is not visible here; the text then
 * reports it. */
#include "report/compare.h"

#include "report/text_layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const settings[] = {"num_workers", "persistent_workers", "prefetch_factor",
                                       "pin_memory",  "batch_size",         "num_threads"};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* The value in Python's notation: 4, True, None. */
static void value_text(const json_t *loader, const char *key, char *text, size_t bytes)
{
    const json_t *value = json_object_get(loader, key);
    if (!value && strcmp(key, "num_threads") == 0) /* of leat.DataLoader */
        value = json_object_get(json_object_get(loader, "engine"), "threads");
    if (json_is_boolean(value))
        snprintf(text, bytes, "%s", json_is_true(value) ? "True" : "False");
    else if (json_is_integer(value))
        snprintf(text, bytes, "%lld", (long long)json_integer_value(value));
    else
        snprintf(text, bytes, "None");
}

/* The value that `setting` ("a=1,b=True") gives to a key; 0 when it gives none. */
static int value_in(const char *setting, const char *key, char *text, size_t bytes)
{
    size_t length = strlen(key);
    for (const char *p = setting; p && *p;) {
        size_t part = strcspn(p, ",");
        if (part > length && strncmp(p, key, length) == 0 && p[length] == '=') {
            snprintf(text, bytes, "%.*s", (int)(part - length - 1), p + length + 1);
            return 1;
        }
        p += part + (p[part] == ',');
    }
    return 0;
}

enum followed { FOLLOWED_NO, FOLLOWED_YES, FOLLOWED_UNSEEN };

/* Whether the loader of the run after is that of the run before but for `setting`; a prediction of
 * a change of code is an upper bound (predicted_at_most) and names no setting. */
static enum followed is_followed(const char *setting, int of_code, const json_t *before,
                                 const json_t *after)
{
    for (int i = 0; i < SETTINGS; i++) {
        char was[32], is[32], wanted[32];
        value_text(before, settings[i], was, sizeof was);
        value_text(after, settings[i], is, sizeof is);
        int advised = !of_code && value_in(setting, settings[i], wanted, sizeof wanted);
        /* torch gives workers a prefetch_factor of their own accord. */
        if (!advised && strcmp(settings[i], "prefetch_factor") == 0 &&
            (strcmp(was, "None") == 0 || strcmp(is, "None") == 0))
            continue;
        if (strcmp(is, advised ? wanted : was) != 0)
            return FOLLOWED_NO;
    }
    return of_code ? FOLLOWED_UNSEEN : FOLLOWED_YES;
}

/* Throughput of the second over the first, minus 1: of samples if both count them. By means, not
 * medians, because shorter waits at the start of an epoch are a gain too. */
static double measured_gain(const json_t *before, const json_t *after)
{
    double b = json_find_number(before, "step_time.samples_per_s", NAN);
    double a = json_find_number(after, "step_time.samples_per_s", NAN);
    if (b > 0 && a > 0)
        return a / b - 1;
    return json_find_number(before, "step_time.mean", NAN) /
               json_find_number(after, "step_time.mean", NAN) -
           1;
}

static void describe(char *text, size_t bytes, enum followed followed, const char *change,
                     double predicted, double measured)
{
    char p[LAYOUT_CELL], m[LAYOUT_CELL], setting[256];
    size_t n = 0;
    for (const char *c = change; *c && n + 2 < sizeof setting; c++) { /* "a=1, b=2" */
        setting[n++] = *c;
        if (*c == ',' && c[1] != ' ')
            setting[n++] = ' ';
    }
    setting[n] = 0;
    layout_change(predicted, p);
    layout_change(measured, m);
    if (followed == FOLLOWED_YES)
        snprintf(text, bytes, "predicted %s throughput with %.120s, measured %s", p, setting, m);
    else if (followed == FOLLOWED_UNSEEN)
        snprintf(text, bytes,
                 "predicted at most %s throughput (%.120s), measured %s; leat cannot tell whether "
                 "the code was changed",
                 p, setting, m);
    else
        snprintf(text, bytes, "predicted %s throughput with another change (%.120s), measured %s",
                 p, setting, m);
}

json_t *compare_prediction(const json_t *before, const json_t *before_loader, const json_t *after,
                           const json_t *after_loader)
{
    const json_t *item, *predicted = NULL;
    int of_code = 0;
    size_t i;
    json_array_foreach (json_object_get(before, "findings"), i, item)
        if (!predicted && json_find_text(item, "predicted.setting", NULL)) {
            predicted = json_find(item, "predicted");
            of_code = json_is_true(json_object_get(item, "predicted_at_most"));
        }
    if (!predicted || !before_loader || !after_loader)
        return json_null();
    const char *setting = json_find_text(predicted, "setting", "");
    double gain = json_find_number(predicted, "gain", NAN), measured = measured_gain(before, after);
    enum followed followed = is_followed(setting, of_code, before_loader, after_loader);
    char text[400];
    describe(text, sizeof text, followed, setting, gain, measured);
    return json_pack("{so so so so so so}", "setting", json_text_or_null(setting), "followed",
                     followed == FOLLOWED_UNSEEN ? json_null() : json_boolean(followed),
                     "predicted_gain", json_number_or_null(gain), "measured_gain",
                     json_number_or_null(measured), "predicted_step_ms",
                     json_number_or_null(json_find_number(predicted, "step_ms", NAN)), "text",
                     json_text_or_null(text));
}
