/* download.h: the bytes of an http, https or s3 address, as they arrive.
 *
 *     s3://bucket/key   https://bucket.s3.REGION.amazonaws.com/key, or ENDPOINT/bucket/key
 *
 * Requests to s3 are signed when AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are set (and
 * AWS_SESSION_TOKEN, if set); without them a public bucket can be read. REGION is AWS_REGION,
 * AWS_DEFAULT_REGION or us-east-1. libcurl does the work; proxies are those of the environment.
 *
 * Redirects are followed, to http and https only. A redirect to another host, port or scheme gets
 * no signature, no session token and no user and password, nor do those that follow it.
 *
 * Messages name an address without what may be secret in it: user, password and query.
 */
#ifndef LEAT_LOAD_SOURCE_DOWNLOAD_H
#define LEAT_LOAD_SOURCE_DOWNLOAD_H

#include "base/err.h"
#include "base/str.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* 1: an address of any scheme, not a path. */
int download_is_address(const char *shard);

/* The address as it may be shown; mem_free it. */
char *download_label(const char *address);

struct download {
    const char *address, *label;
    const char *endpoint;   /* for s3; NULL: Amazon's */
    int timeout_s;          /* limit on the time without any byte */
    const atomic_int *stop; /* not 0: fail with -ECANCELED */
    /* Called with what arrives. `length` is that of the whole, -1 if the server did not send it. A
     * negative return ends the download and is passed on, with the message in `err`. */
    int (*put)(void *owner, const uint8_t *bytes, size_t count, int64_t length,
               struct leat_err *err);
    void *owner;
};

/* Adds the URL that is requested. An unknown scheme is refused. */
int download_url(const struct download *download, struct str *url, struct leat_err *err);

/* 0: all bytes arrived. *ret_again (also written on failure): trying again may help. */
int download_run(const struct download *download, int *ret_again, struct leat_err *err);

#endif
