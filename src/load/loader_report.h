/* loader_report.h: where a loader's figures for `leat run` go. */
#ifndef LEAT_LOAD_LOADER_REPORT_H
#define LEAT_LOAD_LOADER_REPORT_H

#include "record/recorder_calls.h"

/* To the recorder behind these calls; without it, to the one of the same library. To be called
 * once, before any loader is made. */
void loader_report_to(const struct leat_recorder_calls *calls);

#endif
