/* download.c: see download.h. libcurl is opened when the first address is opened, so the extension
 * needs neither it nor its TLS library. It must be 7.75 or later for signed requests. */
#include "download.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <ctype.h>
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REDIRECTS = 5 };

#define CURL_FUNCTIONS(X)                                                                          \
    X(global_init)                                                                                 \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_perform)                                                                                \
    X(easy_cleanup)                                                                                \
    X(easy_strerror)                                                                               \
    X(slist_append)                                                                                \
    X(slist_free_all)

static struct {
    int found;
#define X(name) typeof(curl_##name) *name;
    CURL_FUNCTIONS(X)
#undef X
} curl;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    /* The flavours differ in their TLS library alone. */
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    int found = 1;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
#define X(name) found &= (*(void **)&curl.name = dlsym(library, "curl_" #name)) != NULL;
    CURL_FUNCTIONS(X)
#undef X
    curl.found = found && curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* ---- Addresses ---- */

/* What follows "scheme://"; NULL: this is a path. */
static const char *after_scheme(const char *shard)
{
    const char *p = shard;
    while (isalnum((unsigned char)*p) || *p == '+' || *p == '-' || *p == '.')
        p++;
    return p > shard && strncmp(p, "://", 3) == 0 ? p + 3 : NULL;
}

int download_is_address(const char *shard)
{
    return after_scheme(shard) != NULL;
}

char *download_label(const char *address)
{
    struct str text = {0};
    const char *rest = after_scheme(address);
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

static int s3_url(const struct download *download, struct str *url, struct leat_err *err)
{
    const char *bucket = after_scheme(download->address), *slash = strchr(bucket, '/');
    size_t length = slash ? (size_t)(slash - bucket) : 0;
    if (!length || !slash[1])
        return err_set(err, -LEAT_E_USAGE, "%s is not of the form s3://bucket/key.",
                       download->label);
    if (download->endpoint && *download->endpoint) {
        size_t end = strlen(download->endpoint);
        while (end && download->endpoint[end - 1] == '/')
            end--;
        str_add_bytes(url, download->endpoint, end);
        str_addf(url, "/%.*s", (int)length, bucket);
    } else {
        str_addf(url, "https://%.*s.s3.%s.amazonaws.com", (int)length, bucket, region());
    }
    add_escaped(url, slash);
    return 0;
}

int download_url(const struct download *download, struct str *url, struct leat_err *err)
{
    if (has_scheme(download->address, "s3://"))
        return s3_url(download, url, err);
    if (!has_scheme(download->address, "http://") && !has_scheme(download->address, "https://"))
        return err_set(err, -LEAT_E_USAGE,
                       "%s: shards are paths, or addresses of http, https or s3.", download->label);
    str_add(url, download->address);
    return 0;
}

/* ---- One transfer ---- */

struct transfer {
    const struct download *download;
    const char *url;
    CURL *handle;
    struct curl_slist *headers;
    struct str signing, user;
    struct leat_err *err;
    int failed; /* of put() */
    int timed_out;
    uint64_t last_ns; /* of the last byte */
    int64_t last_bytes;
    char text[CURL_ERROR_SIZE];
};

static long status_of(const struct transfer *t)
{
    long status = 0;
    curl.easy_getinfo(t->handle, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static int is_redirect(const struct transfer *t)
{
    return status_of(t) / 100 == 3;
}

static size_t take(char *bytes, size_t size, size_t count, void *owner)
{
    struct transfer *t = owner;
    curl_off_t length = -1;
    if (is_redirect(t))
        return size * count; /* its body is no part of the shard */
    curl.easy_getinfo(t->handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    t->failed =
        t->download->put(t->download->owner, (const uint8_t *)bytes, size * count, length, t->err);
    return t->failed < 0 ? 0 : size * count;
}

/* libcurl calls this at least once per second; not 0: it stops the transfer. Its own limit on slow
 * transfers is a mean over some seconds; this one limits the time without any byte. */
static int give_up(void *owner, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                   curl_off_t up)
{
    struct transfer *t = owner;
    uint64_t now_ns = clock_now_ns();
    if (!t->last_ns || down != t->last_bytes) {
        t->last_ns = now_ns;
        t->last_bytes = down;
    }
    t->timed_out = now_ns - t->last_ns > (uint64_t)t->download->timeout_s * NS_PER_S;
    return t->timed_out || atomic_load(t->download->stop);
}

static void add_header(struct transfer *t, const char *text)
{
    struct curl_slist *longer = curl.slist_append(t->headers, text);
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
        return err_set(err, -ENOMEM, "No memory to download %s.", t->download->label);
    if (curl.easy_setopt(t->handle, CURLOPT_AWS_SIGV4, t->signing.text) != 0)
        return err_set(err, -LEAT_E_MISSING,
                       "%s needs a signed request, which the installed libcurl cannot make; 7.75 "
                       "and later can.",
                       t->download->label);
    curl.easy_setopt(t->handle, CURLOPT_USERPWD, t->user.text);
    add_header(t, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
    if (token && *token) {
        struct str header = {0};
        str_addf(&header, "x-amz-security-token: %s", token);
        add_header(t, str_text(&header));
        str_done(&header);
    }
    curl.easy_setopt(t->handle, CURLOPT_HTTPHEADER, t->headers);
    return 0;
}

static int prepare(struct transfer *t, int signs, struct leat_err *err)
{
    const struct download *download = t->download;
    if (!(t->handle = curl.easy_init()))
        return err_set(err, -ENOMEM, "No memory to download %s.", download->label);
    curl.easy_setopt(t->handle, CURLOPT_URL, t->url);
    curl.easy_setopt(t->handle, CURLOPT_ERRORBUFFER, t->text);
    curl.easy_setopt(t->handle, CURLOPT_USERAGENT, "leat/" LEAT_VERSION);
    curl.easy_setopt(t->handle, CURLOPT_FAILONERROR, 1L);
    curl.easy_setopt(t->handle, CURLOPT_NOSIGNAL, 1L);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* its successor came with 7.85 */
    curl.easy_setopt(t->handle, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#pragma GCC diagnostic pop
    curl.easy_setopt(t->handle, CURLOPT_CONNECTTIMEOUT, (long)download->timeout_s);
    curl.easy_setopt(t->handle, CURLOPT_WRITEFUNCTION, take);
    curl.easy_setopt(t->handle, CURLOPT_WRITEDATA, t);
    curl.easy_setopt(t->handle, CURLOPT_XFERINFOFUNCTION, give_up);
    curl.easy_setopt(t->handle, CURLOPT_XFERINFODATA, t);
    curl.easy_setopt(t->handle, CURLOPT_NOPROGRESS, 0L);
    return signs ? sign(t, err) : 0;
}

static int perform(struct transfer *t, int *ret_again, struct leat_err *err)
{
    const char *label = t->download->label;
    CURLcode result = curl.easy_perform(t->handle);
    if (t->failed < 0)
        return t->failed;
    if (atomic_load(t->download->stop))
        return err_set(err, -ECANCELED, "The download of %s was cancelled.", label);
    if (!result)
        return 0;
    long status = status_of(t);
    if (result == CURLE_HTTP_RETURNED_ERROR) { /* other 4xx: do not retry */
        *ret_again = status >= 500 || status == 408 || status == 429;
        return err_set(err, status == 404 ? -ENOENT : -EIO, "%s: the server answered %ld%s.", label,
                       status,
                       status == 404                    ? " (not found)"
                       : status == 401 || status == 403 ? " (access denied)"
                                                        : "");
    }
    *ret_again = result != CURLE_UNSUPPORTED_PROTOCOL && result != CURLE_URL_MALFORMAT &&
                 result != CURLE_PEER_FAILED_VERIFICATION && result != CURLE_SSL_CACERT_BADFILE;
    if (t->timed_out)
        return err_set(err, -ETIMEDOUT, "%s could not be downloaded: no byte in %d s.", label,
                       t->download->timeout_s);
    return err_set(err, -EIO, "%s could not be downloaded: %s.", label,
                   *t->text ? t->text : curl.easy_strerror(result));
}

/* ---- Redirects ----
 *
 * They are followed here and not by libcurl, which sends headers that were added, such as
 * x-amz-security-token, to every host. */

struct url_parts {
    size_t scheme; /* with "://" */
    size_t user;   /* with "@"; mostly 0 */
    size_t host;   /* with the port */
};

static struct url_parts split_url(const char *url)
{
    const char *rest = after_scheme(url);
    if (!rest)
        return (struct url_parts){0};
    size_t authority = strcspn(rest, "/?#");
    const char *at = memrchr(rest, '@', authority);
    size_t user = at ? (size_t)(at + 1 - rest) : 0;
    return (struct url_parts){(size_t)(rest - url), user, authority - user};
}

static int is_same_server(const char *a, const char *b)
{
    struct url_parts x = split_url(a), y = split_url(b);
    return x.scheme && x.scheme == y.scheme && x.host == y.host &&
           strncasecmp(a, b, x.scheme) == 0 &&
           strncasecmp(a + x.scheme + x.user, b + y.scheme + y.user, x.host) == 0;
}

/* The next URL: with the user and password of the last one, if it goes to the same server, else
 * without any. */
static void set_next_url(struct str *url, const char *location, int same)
{
    struct url_parts old = split_url(url->text), new = split_url(location);
    struct str next = {0};
    str_add_bytes(&next, location, new.scheme);
    if (same)
        str_add_bytes(&next, url->text + old.scheme, old.user);
    str_add(&next, location + new.scheme + new.user);
    str_done(url);
    *url = next;
}

/* One request. *ret_location: where it redirects to, else NULL; mem_free it. */
static int request(const struct download *download, const char *url, int signs, char **ret_location,
                   int *ret_again, struct leat_err *err)
{
    struct transfer t = {.download = download, .url = url, .err = err};
    const char *location = NULL;
    int failed = prepare(&t, signs, err);
    if (!failed)
        failed = perform(&t, ret_again, err);
    if (!failed && is_redirect(&t)) {
        curl.easy_getinfo(t.handle, CURLINFO_REDIRECT_URL, &location);
        if (!location)
            failed = err_set(err, -EIO, "%s: the server answered %ld without an address.",
                             download->label, status_of(&t));
        else if (!(*ret_location = mem_strdup(location)))
            failed = err_set(err, -ENOMEM, "No memory to download %s.", download->label);
    }
    if (t.handle)
        curl.easy_cleanup(t.handle);
    curl.slist_free_all(t.headers);
    str_done(&t.signing);
    str_done(&t.user);
    return failed;
}

static int follow(const struct download *download, struct str *url, int *ret_again,
                  struct leat_err *err)
{
    int signs = has_scheme(download->address, "s3://"), same = 1;
    for (int redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
        char *location = NULL;
        if (url->failed)
            return err_set(err, -ENOMEM, "No memory to download %s.", download->label);
        int failed = request(download, url->text, signs && same, &location, ret_again, err);
        if (!location)
            return failed;
        same = same && is_same_server(url->text, location);
        set_next_url(url, location, same);
        mem_free(location);
    }
    return err_set(err, -EIO, "%s could not be downloaded: more than %d redirects.",
                   download->label, MAX_REDIRECTS);
}

int download_run(const struct download *download, int *ret_again, struct leat_err *err)
{
    struct str url = {0};
    *ret_again = 0;
    pthread_once(&once, open_library);
    if (!curl.found)
        return err_set(
            err, -LEAT_E_MISSING,
            "%s cannot be downloaded: libcurl.so.4 is not installed (Debian's package is "
            "libcurl4).",
            download->label);
    int failed = download_url(download, &url, err);
    if (!failed)
        failed = follow(download, &url, ret_again, err);
    str_done(&url);
    return failed;
}
