/* test_source_tar.c: shards through the C API: values, keys and lengths, bad samples, allocations
 * that fail, and giving up. The formats and the servers are tested beside Python's tarfile
 * (tests/python/test_tar.py, test_tar_remote.py). */
#include "samples.h"

#include "base/mem.h"
#include "load/source/remote/download.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <sys/socket.h>

#define SHARDS 3
#define ROWS   7

static char folder[32];
static char paths[SHARDS][64];
static const char *shards[SHARDS];

static void put(FILE *file, const char *name, const void *bytes, size_t count)
{
    static const char zeros[512];
    char header[513] = {0};
    unsigned sum = 0;
    snprintf(header, 100, "%s", name);
    snprintf(header + 100, 8, "%07o", 0644);
    snprintf(header + 124, 12, "%011o", (unsigned)count);
    header[156] = '0';
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    fwrite(header, 1, 512, file);
    fwrite(bytes, 1, count, file);
    fwrite(zeros, 1, -count % 512, file);
}

/* Sample i of all: .cls is i, .bin i bytes of i, .f4 two floats of i; sample 10 has no .bin. */
static void write_shard(int shard)
{
    static const char zeros[1024];
    char name[32], digits[16];
    FILE *file = fopen(paths[shard], "w");
    for (int i = shard * ROWS; i < (shard + 1) * ROWS; i++) {
        uint8_t bytes[SHARDS * ROWS];
        float numbers[] = {(float)i, (float)i};
        memset(bytes, i, sizeof bytes);
        snprintf(digits, sizeof digits, "%d", i);
        snprintf(name, sizeof name, "d/%04d.cls", i);
        put(file, name, digits, strlen(digits));
        snprintf(name, sizeof name, "d/%04d.bin", i);
        if (i != 10)
            put(file, name, bytes, (size_t)i);
        snprintf(name, sizeof name, "d/%04d.f4", i);
        put(file, name, numbers, sizeof numbers);
    }
    fwrite(zeros, 1, sizeof zeros, file);
    fclose(file);
}

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/leat-tar-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    for (int i = 0; i < SHARDS; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d.tar", folder, i);
        shards[i] = paths[i];
        write_shard(i);
    }
    return 0;
}

static int remove_folder(void **state)
{
    for (int i = 0; i < SHARDS; i++)
        unlink(paths[i]);
    return rmdir(folder); /* fails where a test left a file */
}

static const struct leat_tar_field fields[] = {
    {"cls", {.kind = LEAT_CODEC_DECIMAL}                                              },
    {"bin", {.kind = LEAT_CODEC_BYTES}                                                },
    {"f4",  {.kind = LEAT_CODEC_ARRAY, .dtype = LEAT_FLOAT32, .dims = 1, .shape = {2}}}
};

static struct leat_tar asked(void)
{
    return (struct leat_tar){.shards = shards,
                             .shard_count = SHARDS,
                             .fields = fields,
                             .field_count = 3,
                             .keys = 1,
                             .skip_missing = 1};
}

static void check_sample(const struct leat_batch *batch, int64_t row)
{
    const struct leat_span *keys = batch->data[0], *bytes = batch->data[2];
    int64_t number = ((const int64_t *)batch->data[1])[row];
    const float *floats = (const float *)batch->data[3] + 2 * row;
    char key[16];
    snprintf(key, sizeof key, "d/%04d", (int)number);
    assert_int_equal(batch->indices[row], number > 10 ? number - 1 : number);
    assert_int_equal(keys[row].items, strlen(key));
    assert_memory_equal(keys[row].data, key, strlen(key));
    assert_int_equal(bytes[row].items, number);
    for (int64_t i = 0; i < number; i++)
        assert_int_equal(((const uint8_t *)bytes[row].data)[i], number);
    assert_true(floats[0] == (float)number && floats[1] == (float)number);
}

static void every_sample_is_read_once(void **state)
{
    struct leat_tar tar = asked();
    struct leat_source *source = NULL;
    must(leat_source_tar(&tar, &source, &err));
    assert_int_equal(leat_source_count(source), SHARDS * ROWS - 1);
    assert_int_equal(leat_source_fields(source), 4);
    assert_string_equal(leat_source_field(source, 0)->name, "__key__");
    struct leat_loader *l =
        load(source,
             (struct leat_loader_options){.batch_size = 4, .order = LEAT_ORDER_FULL, .threads = 3});
    assert_string_equal(leat_source_decode(source), "cls from digits");
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        int seen[SHARDS * ROWS] = {0};
        must(leat_loader_start(l, epoch, &err));
        for (struct leat_batch *batch; (batch = next(l)); leat_batch_unref(batch))
            for (int64_t row = 0; row < batch->samples; row++) {
                check_sample(batch, row);
                seen[batch->indices[row]]++;
            }
        for (int i = 0; i < SHARDS * ROWS - 1; i++)
            assert_int_equal(seen[i], 1);
    }
    leat_loader_close(l);
    leat_source_unref(source);
}

static void lengths_are_known_before_reading(void **state)
{
    struct leat_tar tar = asked();
    struct leat_source *source = NULL;
    int64_t lengths[SHARDS * ROWS - 1];
    must(leat_source_tar(&tar, &source, &err));
    must(source->ops->lengths(source, 2, 0, SHARDS * ROWS - 1, lengths, &err));
    for (int64_t i = 0; i < SHARDS * ROWS - 1; i++)
        assert_int_equal(lengths[i], i < 10 ? i : i + 1);
    must(source->ops->lengths(source, 0, 5, 3, lengths, &err));
    assert_int_equal(lengths[2], 6);
    assert_int_equal(source->ops->lengths(source, 1, 0, 1, lengths, &err), -LEAT_E_USAGE);
    leat_source_unref(source);
}

static void a_sample_that_lacks_a_field_is_bad(void **state)
{
    struct leat_tar tar = asked();
    struct leat_source *source = NULL;
    struct leat_batch *batch;
    tar.skip_missing = 0;
    must(leat_source_tar(&tar, &source, &err));
    assert_int_equal(leat_source_count(source), SHARDS * ROWS);
    assert_int_equal(leat_source_read(source, &(int64_t){10}, 1, NULL, &batch, &err),
                     -LEAT_E_MISSING);
    assert_non_null(strstr(err.text, "/1.tar: \"d/0010.bin\": it is not there"));
    must(leat_source_read(source, &(int64_t){11}, 1, NULL, &batch, &err));
    leat_batch_unref(batch);
    leat_source_unref(source);
}

static void wrong_arguments_are_refused(void **state)
{
    struct leat_tar tar = asked();
    struct leat_source *source = NULL;
    struct leat_tar_field twice[] = {fields[0], fields[0]}, longest = {.extension = ""};
    tar.shard_count = 0;
    assert_int_equal(leat_source_tar(&tar, &source, &err), -LEAT_E_USAGE);
    tar = asked();
    tar.fields = twice;
    tar.field_count = 2;
    assert_int_equal(leat_source_tar(&tar, &source, &err), -LEAT_E_USAGE);
    tar.fields = &longest;
    tar.field_count = 1;
    assert_int_equal(leat_source_tar(&tar, &source, &err), -LEAT_E_USAGE);
    tar.field_count = LEAT_MAX_FIELDS;
    assert_int_equal(leat_source_tar(&tar, &source, &err), -LEAT_E_USAGE);
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *open = opendir("/proc/self/fd");
    while (readdir(open))
        count++;
    closedir(open);
    return count;
}

static void every_allocation_may_fail(void **state)
{
    int before = count_descriptors();
    for (unsigned long n = 1;; n++) {
        struct leat_tar tar = asked();
        struct leat_source *source = NULL;
        tar.threads = 1;
        tar.field_count = n % 2 ? 3 : 0; /* given, and found in the first sample */
        err.text[0] = 0;
        mem_fail_at(n);
        int failed = leat_source_tar(&tar, &source, &err);
        unsigned long made = mem_fail_at(0);
        if (!failed)
            leat_source_unref(source);
        else {
            assert_int_equal(failed, -ENOMEM);
            assert_string_not_equal(err.text, "");
        }
        assert_int_equal(count_descriptors(), before);
        if (made < n && n % 2 == 0)
            break;
        assert_true(n < 1000);
    }
}

static int give_up(void *owner)
{
    ++*(int *)owner;
    return 1;
}

/* A server that takes connections and never answers. */
static int listen_silently(uint16_t *ret_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 4) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &bytes) < 0)
        return -1;
    *ret_port = ntohs(at.sin_port);
    return fd;
}

static void opening_can_be_cancelled(void **state)
{
    int asked_times = 0;
    struct leat_tar tar = asked();
    struct leat_source *source = NULL;
    int before = count_descriptors();
    char address[64];
    uint16_t port = 0;
    int listener = listen_silently(&port);
    assert_true(listener >= 0);
    snprintf(address, sizeof address, "http://127.0.0.1:%d/s.tar", port);
    const char *addresses[] = {address, shards[0]};
    tar.shards = addresses;
    tar.shard_count = 2;
    tar.cancelled = give_up;
    tar.owner = &asked_times;
    int failed = leat_source_tar(&tar, &source, &err);
    close(listener);
    if (failed == -LEAT_E_MISSING) /* no libcurl here */
        skip();
    assert_int_equal(failed, -ECANCELED);
    assert_int_equal(asked_times, 1);
    assert_int_equal(count_descriptors(), before);
}

/* Which server is asked for what: the endpoint and the region are the user's. */
static void an_s3_address_is_made_a_url(void **state)
{
    static const struct {
        const char *address, *endpoint, *region, *url;
    } cases[] = {
        {"s3://data/train/0.tar", NULL,                  NULL,
         "https://data.s3.us-east-1.amazonaws.com/train/0.tar"                                                                  },
        {"s3://data/train/0.tar", "",                    "eu-central-1",
         "https://data.s3.eu-central-1.amazonaws.com/train/0.tar"                                                               },
        {"S3://data/a b+c.tar",   NULL,                  "",             "https://data.s3.us-east-1.amazonaws.com/a%20b%2Bc.tar"},
        {"s3://data/0.tar",       "http://minio:9000//", "eu-central-1", "http://minio:9000/data/0.tar"                         },
        {"https://a.b/c?d=e f",   "http://minio:9000",   NULL,           "https://a.b/c?d=e f"                                  },
    };
    unsetenv("AWS_DEFAULT_REGION");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct download download = {.address = cases[i].address, .endpoint = cases[i].endpoint};
        struct str url = {0};
        cases[i].region ? setenv("AWS_REGION", cases[i].region, 1) : unsetenv("AWS_REGION");
        must(download_url(&download, &url, &err));
        assert_string_equal(str_text(&url), cases[i].url);
        str_done(&url);
    }
    unsetenv("AWS_REGION");
    static const char *const wrong[] = {"s3://data", "s3://data/", "s3:///0.tar",
                                        "gs://data/0.tar"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct download download = {.address = wrong[i], .label = wrong[i]};
        struct str url = {0};
        assert_int_equal(download_url(&download, &url, &err), -LEAT_E_USAGE);
        assert_non_null(strstr(err.text, wrong[i]));
        str_done(&url);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_is_read_once),
        cmocka_unit_test(lengths_are_known_before_reading),
        cmocka_unit_test(a_sample_that_lacks_a_field_is_bad),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(opening_can_be_cancelled),
        cmocka_unit_test(an_s3_address_is_made_a_url),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
