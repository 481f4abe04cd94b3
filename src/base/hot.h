/* hot.h: which code every training step and every batch of a worker runs, and which they do not.
 *
 * Between two of leat's turns a step displaces it from the caches, so what a turn costs is the
 * lines of code that have to come back. HOT functions are laid side by side, COLD ones (and the
 * branches that lead to them) elsewhere, so that those lines are few. HOT_DATA does the same for
 * the variables that a step looks at, of whatever file: together they are few lines.
 */
#ifndef LEAT_BASE_HOT_H
#define LEAT_BASE_HOT_H

#define HOT      __attribute__((hot))
#define COLD     __attribute__((cold, noinline))
#define HOT_DATA __attribute__((section("leat_hot")))

#endif
