/* probe_preload.h: giving the CUDA probe (src/probe) to the training. */
#ifndef LEAT_CLI_PROBE_PRELOAD_H
#define LEAT_CLI_PROBE_PRELOAD_H

/* The probe's path when the training should have it, else NULL (the caller's to mem_free). It
 * should have it when the machine has an NVIDIA device, or when LEAT_PROBE is 1; never when
 * LEAT_PROBE is 0. *ret_why is a sentence when it should, but the file cannot be preloaded; else
 * NULL. */
char *probe_find(const char *package_dir, const char **ret_why);

/* Puts it into this process's LD_PRELOAD, for what it is about to become. What the user has there
 * stays in front. 0 or a negative errno. */
int probe_preload(const char *path);

#endif
