/* replay.c: runs a fuzz target over every file of a folder, and over some hundred mutations of
 * each, with a fixed seed and without a fuzzing compiler. It does not look for new paths as a
 * fuzzer does, but finds a bounds check that is missing. With LEAT_FUZZ_SECONDS in the environment,
 * more rounds of mutations follow for that long; AddressSanitizer's report then ends with the
 * round. */
#include "base/err.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/stats.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int mutations = 300;
static const char *current_path = "";
static int current_round;

/* Called by AddressSanitizer after its report. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    fprintf(stderr, "mutation of %s in round %d\n", current_path, current_round);
}

static void mutate(const char *text, size_t bytes, uint64_t seed)
{
    char *copy = mem_alloc(bytes + 1);
    if (!copy)
        return;
    for (int m = 0; m < mutations; m++) {
        memcpy(copy, text, bytes);
        uint64_t r = stats_random(seed, (uint64_t)m);
        size_t length = r % 4 == 0 ? (size_t)(r >> 8) % (bytes + 1) : bytes;
        for (int k = 0; k < 1 + (int)(r >> 4) % 8 && length; k++) {
            uint64_t q = stats_random(seed ^ r, (uint64_t)k);
            copy[q % length] = (char)(q >> 32);
        }
        LLVMFuzzerTestOneInput((const uint8_t *)copy, length);
    }
    mem_free(copy);
}

/* The number of files, or -1. */
static int run_round(const char *folder, int round)
{
    int files = 0;
    DIR *entries = opendir(folder);
    if (!entries) {
        fprintf(stderr, "%s cannot be read\n", folder);
        return -1;
    }
    current_round = round;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = path_join(folder, entry->d_name, NULL);
        char *text;
        size_t bytes;
        struct leat_err err = {""};
        if (path_read_file(path, 64u << 20, &text, &bytes, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            files = -1;
            mem_free(path);
            break;
        }
        current_path = path;
        if (round == 0)
            LLVMFuzzerTestOneInput((const uint8_t *)text, bytes);
        mutate(text, bytes, (uint64_t)++files + (uint64_t)round * 1000003);
        current_path = "";
        mem_free(text);
        mem_free(path);
    }
    closedir(entries);
    return files;
}

int main(int argc, char **argv)
{
    const char *seconds = getenv("LEAT_FUZZ_SECONDS");
    time_t end = time(NULL) + (seconds ? atol(seconds) : 0);
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
        return 2;
    }
    int files = run_round(argv[1], 0), rounds = 1;
    for (; files > 0 && time(NULL) < end; rounds++)
        files = run_round(argv[1], rounds);
    printf("%d files, %d rounds of %d mutations each\n", files, rounds, mutations);
    return files > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
