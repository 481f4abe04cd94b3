/* fetch.h: the bytes behind an http, https or s3 address, as they come.
 *
 *     s3://bucket/key   https://bucket.s3.REGION.amazonaws.com/key, or ENDPOINT/bucket/key
 *
 * Requests to s3 are signed where AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are set (with
 * AWS_SESSION_TOKEN, where that is); without them a public bucket can be read. REGION is
 * AWS_REGION, AWS_DEFAULT_REGION or us-east-1. libcurl does the work: it is looked for when it is
 * needed. Redirections are followed, to http and https only; proxies are those of the environment.
 *
 * Sentences name an address without what may be secret in it: user, password and query.
 */
#ifndef LEAT_LOAD_SOURCE_FETCH_H
#define LEAT_LOAD_SOURCE_FETCH_H

#include "base/err.h"
#include "base/str.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* 1: an address rather than a path, of whatever scheme. */
int fetch_is_address(const char *shard);

/* The address as it may be shown; mem_free it. */
char *fetch_label(const char *address);

struct fetch {
    const char *address, *label;
    const char *endpoint;   /* for s3; NULL: Amazon's */
    int timeout_s;          /* without a byte for so long: given up */
    const atomic_int *stop; /* not 0: given up with -ECANCELED */
    /* What arrives. `length` is that of all of it, or -1: the server did not say. A negative
     * return gives up and is passed on, with the sentence in `err`. */
    int (*put)(void *owner, const uint8_t *bytes, size_t count, int64_t length,
               struct leat_err *err);
    void *owner;
};

/* Adds what the server is asked for. An address of no known scheme is refused. */
int fetch_url(const struct fetch *fetch, struct str *url, struct leat_err *err);

/* 0: everything came. *ret_again (also written on failure): it may go better another time. */
int fetch_all(const struct fetch *fetch, int *ret_again, struct leat_err *err);

#endif
