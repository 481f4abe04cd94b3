/* probe_preload.h: preloads the CUDA probe (src/probe) into the training. */
#ifndef LEAT_LAUNCH_PROBE_PRELOAD_H
#define LEAT_LAUNCH_PROBE_PRELOAD_H

/* The probe's path (the caller's to mem_free) when it is to be preloaded: when the machine has an
 * NVIDIA device or LEAT_PROBE is 1, and not when LEAT_PROBE is 0. Else NULL. *ret_why is a sentence
 * when the probe should be preloaded but cannot be; else NULL. */
char *probe_find(const char *package_dir, const char **ret_why);

/* Appends it to LD_PRELOAD of this process, for the exec that follows. 0 or a negative errno. */
int probe_preload(const char *path);

#endif
