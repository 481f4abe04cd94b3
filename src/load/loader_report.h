/* loader_report.h: the recorder that receives the figures of loaders. */
#ifndef LEAT_LOAD_LOADER_REPORT_H
#define LEAT_LOAD_LOADER_REPORT_H

#include "record/recorder_calls.h"

/* Sets the recorder; the default is the one linked into the same library. To be called once, before
 * any loader is made. */
void loader_report_to(const struct leat_recorder_calls *calls);

#endif
