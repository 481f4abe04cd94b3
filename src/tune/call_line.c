/* call_line.c: the DataLoader(...) line to paste: the user's own call, with the recommended
 * settings. Settings equal to torch's default are left out. leat.DataLoader takes the same
 * arguments, without those about workers, and the device.
 */
#include "tune/tune.h"

#include <stdio.h>
#include <string.h>

struct setting {
    const char *name;
    char text[24]; /* "": the default, to be left out */
    int done;
};

enum { SETTINGS = 5 };

static void fill(struct setting settings[SETTINGS], const struct tune_facts *facts,
                 const struct tune_config *c)
{
    const char *names[SETTINGS] = {"batch_size", "num_workers", "prefetch_factor", "pin_memory",
                                   "persistent_workers"};
    for (int i = 0; i < SETTINGS; i++)
        settings[i] = (struct setting){.name = names[i]};
    if (c->workers)
        snprintf(settings[1].text, sizeof settings[1].text, "%d", c->workers);
    if (c->workers && c->prefetch != TUNE_PREFETCH)
        snprintf(settings[2].text, sizeof settings[2].text, "%d", c->prefetch);
    if (c->pin)
        strcpy(settings[3].text, "True");
    if (c->persistent)
        strcpy(settings[4].text, "True");
    /* The user's own expression for the batch size stays, unless another size is recommended. */
    if (c->batch_size == facts->now.batch_size)
        settings[0].done = -1;
    else
        snprintf(settings[0].text, sizeof settings[0].text, "%lld", (long long)c->batch_size);
}

/* 1 for arguments about workers: without workers they are refused by torch, or have no effect. */
static int is_about_workers(const char *name)
{
    static const char *const names[] = {"timeout", "worker_init_fn", "multiprocessing_context",
                                        "pin_memory_device", "in_order"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return 0;
}

static void add(struct str *out, int *count, const char *name, const char *text)
{
    str_add(out, (*count)++ ? ", " : "");
    if (*name)
        str_addf(out, "%s=", name);
    str_add(out, text);
}

void tune_call_line(const struct tune_facts *facts, const struct tune_config *config,
                    struct str *out)
{
    struct setting settings[SETTINGS];
    int count = 0, has_device = 0;
    fill(settings, facts, config);
    const char *call_name = facts->call_name[0] ? facts->call_name : "DataLoader";
    /* A script that uses leat.DataLoader has its own name for it. */
    str_addf(out, "%s(", config->leat && !facts->now.leat ? "leat.DataLoader" : call_name);
    const json_t *argument;
    size_t i;
    json_array_foreach (facts->call, i, argument) {
        const char *name = json_string_value(json_array_get(argument, 0));
        const char *text = json_string_value(json_array_get(argument, 1));
        int own = 1;
        for (int k = 0; name && k < SETTINGS; k++) {
            if (strcmp(name, settings[k].name) != 0 || settings[k].done < 0)
                continue;
            own = 0;
            if (settings[k].text[0])
                add(out, &count, name, settings[k].text);
            settings[k].done = 1;
        }
        has_device |= name && strcmp(name, "device") == 0;
        if (name && text && own && !(config->leat && is_about_workers(name)))
            add(out, &count, name, text);
    }
    if (!facts->call)
        add(out, &count, "", "dataset");
    for (int k = 0; k < SETTINGS; k++)
        if (!settings[k].done && settings[k].text[0])
            add(out, &count, settings[k].name, settings[k].text);
    if (config->leat && facts->device[0] && !has_device)
        str_addf(out, ", device=\"%s\"", facts->device);
    str_add(out, ")");
}
