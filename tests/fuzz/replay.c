/* replay.c: runs a fuzz target over every file of a folder, so that plain CI replays the corpus
 * without a fuzzing compiler. Then mutates each file some hundred times with a fixed seed: not a
 * fuzzer, but enough to catch a bounds check that went away. */
#include "base/err.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/stats.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int mutations = 300;

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

int main(int argc, char **argv)
{
    int files = 0;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
        return 2;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = path_join(argv[1], entry->d_name, NULL);
        char *text;
        size_t bytes;
        struct leat_err err = {""};
        if (path_read_file(path, 64u << 20, &text, &bytes, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        LLVMFuzzerTestOneInput((const uint8_t *)text, bytes);
        mutate(text, bytes, (uint64_t)++files);
        mem_free(text);
        mem_free(path);
    }
    closedir(folder);
    printf("%d files, %d mutations each\n", files, mutations);
    return files ? 0 : 1; /* an empty corpus tests nothing */
}
