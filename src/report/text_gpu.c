/* text_gpu.c: a line of the report per GPU: its clock, power, PCIe traffic, and why it is
 * throttled. */
#include "report/text_parts.h"

#include "report/text_layout.h"

#include <math.h>
#include <stdio.h>

static void add_power(struct str *line, const json_t *gpu)
{
    char part[96];
    double mean = json_find_number(gpu, "power_mean_w", NAN);
    double limit = json_find_number(gpu, "power_limit_w", NAN);
    if (!isfinite(mean))
        return;
    if (isfinite(limit))
        snprintf(part, sizeof part, "%.0f of %.0f W", mean, limit);
    else
        snprintf(part, sizeof part, "%.0f W", mean);
    layout_part(line, part);
}

static void add_link(struct str *line, const json_t *gpu, const char *what, const char *key)
{
    char part[96], path[64], mean[LAYOUT_CELL], most[LAYOUT_CELL];
    snprintf(path, sizeof path, "%s.mean", key);
    double mean_bytes = json_find_number(gpu, path, NAN);
    snprintf(path, sizeof path, "%s.max", key);
    if (!isfinite(mean_bytes))
        return;
    snprintf(part, sizeof part, "%s %s/s, at most %s/s", what, layout_bytes(mean_bytes, mean),
             layout_bytes(json_find_number(gpu, path, NAN), most));
    layout_part(line, part);
}

static void add_gpu(const json_t *gpu, size_t index, struct str *out)
{
    struct str line = {0};
    char part[128];
    double clock = json_find_number(gpu, "sm_clock_mean_mhz", NAN);
    const char *throttle = json_string_value(json_object_get(gpu, "throttle"));
    if (isfinite(clock)) {
        snprintf(part, sizeof part, "%.0f MHz", clock);
        layout_part(&line, part);
    }
    add_power(&line, gpu);
    add_link(&line, gpu, "PCIe in", "pcie_rx_bytes_s");
    add_link(&line, gpu, "out", "pcie_tx_bytes_s");
    if (throttle && *throttle) {
        snprintf(part, sizeof part, "throttled by %s", throttle);
        layout_part(&line, part);
    }
    snprintf(part, sizeof part, "- GPU %zu: ", index);
    if (line.length)
        layout_paragraph(out, part, 2, str_text(&line));
    str_done(&line);
}

void text_gpu(const json_t *summary, struct str *out)
{
    enum { MOST = 8 };
    const json_t *gpus = json_find(summary, "system.gpus"), *gpu;
    size_t i;
    json_array_foreach (gpus, i, gpu)
        if (i < MOST)
            add_gpu(gpu, i, out);
}
