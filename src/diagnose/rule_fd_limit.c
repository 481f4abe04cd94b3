/* rule_fd_limit.c: FD LIMIT: a process of the run has nearly as many open files as it may have.
 * With torch's default sharing strategy every tensor on its way from a worker is an open file. */
#include "diagnose/rule.h"

#define WARNING 0.80 /* one more loader with a few workers would use up the rest */

void rule_fd_limit(const struct facts *facts, struct findings *found)
{
    const struct proc_sample *peak = NULL;
    double most = WARNING;
    for (size_t i = 0; i < facts->proc_sample_count; i++) {
        const struct proc_sample *s = &facts->proc_samples[i];
        if (s->fd_limit > 0 && s->fds >= 0 && (double)s->fds / (double)s->fd_limit >= most) {
            most = (double)s->fds / (double)s->fd_limit;
            peak = s;
        }
    }
    const struct proc_fact *died = exception_with(facts, "Too many open files");
    if (!peak && !died)
        return;
    int stopped = died && ended_badly(facts);
    struct finding *f = findings_add(found, KIND_FD_LIMIT, SECTION_PROCESS,
                                     stopped ? SEVERITY_CRITICAL : SEVERITY_WARNING);
    if (!f)
        return;
    f->stops_run = stopped;
    if (peak)
        f->pid = peak->pid;
    if (died)
        f->pid = died->pid;
    if (peak)
        finding_say(f, "Process %lld had %lld files open; its limit is %lld (%.0f %%)%s.",
                    (long long)peak->pid, (long long)peak->fds, (long long)peak->fd_limit,
                    100 * most, stopped ? ". The run ended because of it" : "");
    else
        finding_say(f, "Process %lld could not open another file: %s.", (long long)died->pid,
                    died->exception);
    finding_advise(f, ACTION_RAISE_FD_LIMIT,
                   "Raise the limit (ulimit -n 65536), or call "
                   "torch.multiprocessing.set_sharing_strategy(\"file_system\") before you create "
                   "the loader.");
    if (peak)
        finding_prove(f, EVIDENCE_OPEN_FILES, (double)peak->fds, "proc_samples WHERE pid = %lld",
                      (long long)peak->pid);
    if (died)
        finding_prove(f, EVIDENCE_FAILED_PROCESSES, 1, "processes WHERE pid = %lld",
                      (long long)died->pid);
}
