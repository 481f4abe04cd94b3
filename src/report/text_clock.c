/* text_clock.c: one line of the report on the idle time of the GPU, of the first rank that has it:
 * its share and causes, and the waits for batches that did not make the GPU idle. */
#include "report/text_parts.h"

#include "report/text_layout.h"

#include <stdio.h>
#include <string.h>

enum { NAMED_PERMILLE = 5 }; /* smaller shares are not shown */

static double phase_number(const json_t *phases, const char *phase, const char *key)
{
    const json_t *item;
    size_t i;
    json_array_foreach (phases, i, item) {
        const char *name = json_string_value(json_object_get(item, "phase"));
        if (name && strcmp(name, phase) == 0)
            return json_find_number(item, key, 0);
    }
    return 0;
}

/* "input 24 %, forward 3.1 %": in the order of a step. */
static void add_causes(struct str *text, const json_t *phases)
{
    static const char *const names[][2] = {
        {"input",      "input"                },
        {"h2d",        "copies to the GPU"    },
        {"forward",    "Python in forward"    },
        {"backward",   "Python in backward"   },
        {"optimizer",  "Python in optimizer"  },
        {"launch",     "between launches"     },
        {"sync",       "after synchronising"  },
        {"collective", "collectives"          },
        {"allocator",  "allocator"            },
        {"other",      "Python between phases"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double share = phase_number(phases, names[i][0], "idle_share");
        char percent[LAYOUT_CELL];
        if (share * 1000 >= NAMED_PERMILLE)
            str_addf(text, "%s%s %s", text->length ? ", " : "", names[i][1],
                     layout_percent(share, percent));
    }
}

void text_clock(const json_t *summary, struct str *out)
{
    const json_t *rank = json_array_get(json_find(summary, "system.gpu_clock"), 0);
    const json_t *phases = json_object_get(rank, "phases");
    char percent[LAYOUT_CELL];
    if (!rank)
        return;
    struct str line = {0}, causes = {0};
    add_causes(&causes, phases);
    str_addf(&line, "idle %s of the time",
             layout_percent(json_find_number(rank, "idle_share", 0), percent));
    if (causes.length)
        str_addf(&line, " (%s)", str_text(&causes));
    double measured = json_find_number(rank, "measured", 0);
    double hidden = phase_number(phases, "input", "hidden");
    if (measured > 0 && hidden * 1000 >= measured * NAMED_PERMILLE)
        str_addf(&line, "; waits for batches while it worked: %s",
                 layout_percent(hidden / measured, percent));
    layout_paragraph(out, "- GPU clock: ", 2, str_text(&line));
    str_done(&line);
    str_done(&causes);
}
