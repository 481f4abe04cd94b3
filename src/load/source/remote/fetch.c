/* fetch.c: see fetch.h. The declarations are those of libcurl's interface, whose numbers never
 * change; the oldest that serves is 7.75 for signed requests, 7.55 for others. */
#include "fetch.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPT_FAILONERROR = 45,
    OPT_NOPROGRESS = 43,
    OPT_FOLLOWLOCATION = 52,
    OPT_MAXREDIRS = 68,
    OPT_CONNECTTIMEOUT = 78,
    OPT_NOSIGNAL = 99,
    OPT_PROTOCOLS = 181,
    OPT_REDIR_PROTOCOLS = 182,
    OPT_WRITEDATA = 10001,
    OPT_URL = 10002,
    OPT_USERPWD = 10005,
    OPT_ERRORBUFFER = 10010,
    OPT_USERAGENT = 10018,
    OPT_HTTPHEADER = 10023,
    OPT_XFERINFODATA = 10057,
    OPT_AWS_SIGV4 = 10305,
    OPT_WRITEFUNCTION = 20011,
    OPT_XFERINFOFUNCTION = 20219,
    INFO_RESPONSE_CODE = 0x200002,
    INFO_CONTENT_LENGTH = 0x60000f,
    PROTOCOLS_HTTP_HTTPS = 3,
    GLOBAL_DEFAULT = 3,
    ERROR_BYTES = 256,
    E_UNSUPPORTED_PROTOCOL = 1,
    E_URL_MALFORMAT = 3,
    E_HTTP_RETURNED_ERROR = 22,
    E_TOO_MANY_REDIRECTS = 47,
    E_PEER_FAILED_VERIFICATION = 60,
    E_SSL_CACERT_BADFILE = 77
};

static struct {
    void *library;
    int (*global_init)(long flags);
    void *(*init)(void);
    int (*setopt)(void *handle, int option, ...);
    int (*getinfo)(void *handle, int info, ...);
    int (*perform)(void *handle);
    void (*cleanup)(void *handle);
    const char *(*strerror)(int code);
    void *(*list_append)(void *list, const char *text);
    void (*list_free)(void *list);
} curl;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    /* The flavours differ in their TLS library alone. */
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    *(void **)&curl.global_init = dlsym(library, "curl_global_init");
    *(void **)&curl.init = dlsym(library, "curl_easy_init");
    *(void **)&curl.setopt = dlsym(library, "curl_easy_setopt");
    *(void **)&curl.getinfo = dlsym(library, "curl_easy_getinfo");
    *(void **)&curl.perform = dlsym(library, "curl_easy_perform");
    *(void **)&curl.cleanup = dlsym(library, "curl_easy_cleanup");
    *(void **)&curl.strerror = dlsym(library, "curl_easy_strerror");
    *(void **)&curl.list_append = dlsym(library, "curl_slist_append");
    *(void **)&curl.list_free = dlsym(library, "curl_slist_free_all");
    if (curl.global_init && curl.init && curl.setopt && curl.getinfo && curl.perform &&
        curl.cleanup && curl.strerror && curl.list_append && curl.list_free &&
        curl.global_init(GLOBAL_DEFAULT) == 0)
        curl.library = library;
}

/* ---- Addresses ---- */

/* Behind "scheme://"; NULL: that is no address. */
static const char *behind_scheme(const char *shard)
{
    const char *p = shard;
    while (isalnum((unsigned char)*p) || *p == '+' || *p == '-' || *p == '.')
        p++;
    return p > shard && strncmp(p, "://", 3) == 0 ? p + 3 : NULL;
}

int fetch_is_address(const char *shard)
{
    return behind_scheme(shard) != NULL;
}

char *fetch_label(const char *address)
{
    struct str text = {0};
    const char *rest = behind_scheme(address);
    size_t host = strcspn(rest, "/?#");
    const char *at = memrchr(rest, '@', host);
    str_add_bytes(&text, address, (size_t)(rest - address));
    rest = at ? at + 1 : rest;
    str_add_bytes(&text, rest, strcspn(rest, "?#"));
    if (!text.failed)
        return text.text;
    str_done(&text);
    return NULL;
}

static int has_scheme(const char *address, const char *scheme)
{
    return strncasecmp(address, scheme, strlen(scheme)) == 0;
}

static const char *from_environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static const char *region(void)
{
    return from_environment("AWS_REGION", from_environment("AWS_DEFAULT_REGION", "us-east-1"));
}

/* Adds what an address may hold as it is, and %XX for the rest. */
static void add_escaped(struct str *url, const char *text)
{
    for (; *text; text++) {
        if (isalnum((unsigned char)*text) || strchr("-._~/", *text))
            str_add_bytes(url, text, 1);
        else
            str_addf(url, "%%%02X", (unsigned)(unsigned char)*text);
    }
}

static int s3_url(const struct fetch *fetch, struct str *url, struct leat_err *err)
{
    const char *bucket = behind_scheme(fetch->address), *slash = strchr(bucket, '/');
    size_t length = slash ? (size_t)(slash - bucket) : 0;
    if (!length || !slash[1])
        return err_set(err, -LEAT_E_USAGE, "%s is not of the form s3://bucket/key.", fetch->label);
    if (fetch->endpoint && *fetch->endpoint) {
        size_t end = strlen(fetch->endpoint);
        while (end && fetch->endpoint[end - 1] == '/')
            end--;
        str_add_bytes(url, fetch->endpoint, end);
        str_addf(url, "/%.*s", (int)length, bucket);
    } else {
        str_addf(url, "https://%.*s.s3.%s.amazonaws.com", (int)length, bucket, region());
    }
    add_escaped(url, slash);
    return 0;
}

int fetch_url(const struct fetch *fetch, struct str *url, struct leat_err *err)
{
    if (has_scheme(fetch->address, "s3://"))
        return s3_url(fetch, url, err);
    if (!has_scheme(fetch->address, "http://") && !has_scheme(fetch->address, "https://"))
        return err_set(err, -LEAT_E_USAGE,
                       "%s: shards are paths, or addresses of http, https or s3.", fetch->label);
    str_add(url, fetch->address);
    return 0;
}

/* ---- One transfer ---- */

struct transfer {
    const struct fetch *fetch;
    void *handle, *headers;
    struct str url, signing, user;
    struct leat_err *err;
    int failed; /* of put() */
    int silent; /* for too long */
    uint64_t heard_ns;
    int64_t heard_bytes;
    char text[ERROR_BYTES];
};

static size_t take(char *bytes, size_t size, size_t count, void *owner)
{
    struct transfer *t = owner;
    int64_t length = -1;
    curl.getinfo(t->handle, INFO_CONTENT_LENGTH, &length);
    t->failed =
        t->fetch->put(t->fetch->owner, (const uint8_t *)bytes, size * count, length, t->err);
    return t->failed < 0 ? 0 : size * count;
}

/* Called by libcurl about once a second at least; not 0: give up. Its own limit on slowness looks
 * at a mean of some seconds, this one at silence alone. */
static int look(void *owner, int64_t down_total, int64_t down, int64_t up_total, int64_t up)
{
    struct transfer *t = owner;
    uint64_t now_ns = clock_now_ns();
    if (!t->heard_ns || down != t->heard_bytes) {
        t->heard_ns = now_ns;
        t->heard_bytes = down;
    }
    t->silent = now_ns - t->heard_ns > (uint64_t)t->fetch->timeout_s * NS_PER_S;
    return t->silent || atomic_load(t->fetch->stop);
}

static void add_header(struct transfer *t, const char *text)
{
    void *longer = curl.list_append(t->headers, text);
    t->headers = longer ? longer : t->headers;
}

static int sign(struct transfer *t, struct leat_err *err)
{
    const char *key = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY");
    const char *token = getenv("AWS_SESSION_TOKEN");
    if (!key || !*key || !secret || !*secret)
        return 0;
    str_addf(&t->signing, "aws:amz:%s:s3", region());
    str_addf(&t->user, "%s:%s", key, secret);
    if (t->signing.failed || t->user.failed)
        return err_set(err, -ENOMEM, "No memory to fetch %s.", t->fetch->label);
    if (curl.setopt(t->handle, OPT_AWS_SIGV4, t->signing.text) != 0)
        return err_set(err, -LEAT_E_MISSING,
                       "%s needs a signed request, which the installed libcurl cannot make; 7.75 "
                       "and later can.",
                       t->fetch->label);
    curl.setopt(t->handle, OPT_USERPWD, t->user.text);
    add_header(t, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
    if (token && *token) {
        struct str header = {0};
        str_addf(&header, "x-amz-security-token: %s", token);
        add_header(t, str_text(&header));
        str_done(&header);
    }
    curl.setopt(t->handle, OPT_HTTPHEADER, t->headers);
    return 0;
}

static int prepare(struct transfer *t, struct leat_err *err)
{
    const struct fetch *fetch = t->fetch;
    int is_s3 = has_scheme(fetch->address, "s3://"), failed = fetch_url(fetch, &t->url, err);
    if (failed < 0)
        return failed;
    if (t->url.failed || !(t->handle = curl.init()))
        return err_set(err, -ENOMEM, "No memory to fetch %s.", fetch->label);
    curl.setopt(t->handle, OPT_URL, t->url.text);
    curl.setopt(t->handle, OPT_ERRORBUFFER, t->text);
    curl.setopt(t->handle, OPT_USERAGENT, "leat/" LEAT_VERSION);
    curl.setopt(t->handle, OPT_FAILONERROR, 1L);
    curl.setopt(t->handle, OPT_NOSIGNAL, 1L);
    curl.setopt(t->handle, OPT_FOLLOWLOCATION, 1L);
    curl.setopt(t->handle, OPT_MAXREDIRS, 5L);
    curl.setopt(t->handle, OPT_PROTOCOLS, (long)PROTOCOLS_HTTP_HTTPS);
    curl.setopt(t->handle, OPT_REDIR_PROTOCOLS, (long)PROTOCOLS_HTTP_HTTPS);
    curl.setopt(t->handle, OPT_CONNECTTIMEOUT, (long)fetch->timeout_s);
    curl.setopt(t->handle, OPT_WRITEFUNCTION, take);
    curl.setopt(t->handle, OPT_WRITEDATA, t);
    curl.setopt(t->handle, OPT_XFERINFOFUNCTION, look);
    curl.setopt(t->handle, OPT_XFERINFODATA, t);
    curl.setopt(t->handle, OPT_NOPROGRESS, 0L);
    return is_s3 ? sign(t, err) : 0;
}

static int perform(struct transfer *t, int *ret_again, struct leat_err *err)
{
    const char *label = t->fetch->label;
    long status = 0;
    int result = curl.perform(t->handle);
    if (t->failed < 0)
        return t->failed;
    if (atomic_load(t->fetch->stop))
        return err_set(err, -ECANCELED, "The fetching of %s was given up.", label);
    if (!result)
        return 0;
    curl.getinfo(t->handle, INFO_RESPONSE_CODE, &status);
    if (result == E_HTTP_RETURNED_ERROR) { /* 4xx is about the request: asking again is idle */
        *ret_again = status >= 500 || status == 408 || status == 429;
        return err_set(err, status == 404 ? -ENOENT : -EIO, "%s: the server answered %ld%s.", label,
                       status,
                       status == 404                    ? " (there is no such thing)"
                       : status == 401 || status == 403 ? " (it may not be read by this user)"
                                                        : "");
    }
    *ret_again = result != E_UNSUPPORTED_PROTOCOL && result != E_URL_MALFORMAT &&
                 result != E_TOO_MANY_REDIRECTS && result != E_PEER_FAILED_VERIFICATION &&
                 result != E_SSL_CACERT_BADFILE;
    if (t->silent)
        return err_set(err, -ETIMEDOUT, "%s could not be fetched: nothing came for %d s.", label,
                       t->fetch->timeout_s);
    return err_set(err, -EIO, "%s could not be fetched: %s.", label,
                   *t->text ? t->text : curl.strerror(result));
}

int fetch_all(const struct fetch *fetch, int *ret_again, struct leat_err *err)
{
    struct transfer t = {.fetch = fetch, .err = err};
    *ret_again = 0;
    pthread_once(&once, open_library);
    if (!curl.library)
        return err_set(err, -LEAT_E_MISSING,
                       "%s cannot be fetched: libcurl.so.4 is not installed (Debian's package is "
                       "libcurl4).",
                       fetch->label);
    int failed = prepare(&t, err);
    if (!failed)
        failed = perform(&t, ret_again, err);
    if (t.handle)
        curl.cleanup(t.handle);
    curl.list_free(t.headers);
    str_done(&t.url);
    str_done(&t.signing);
    str_done(&t.user);
    return failed;
}
