/* journal.c: the last committed state of a database whose writer stopped inside a transaction.
 *
 * SQLite's rollback journal holds the old content of every page that the transaction has changed.
 * SQLite itself would play it back into the file. That is not for us: a reader must not change a
 * byte, and a writer whose disk refuses every write cannot. So file and journal are read into
 * memory, played back there, and handed to SQLite as a database in memory.
 *
 *     journal:  header, padded to a sector │ record │ record │ ...        (numbers big-endian)
 *     header:   magic 8 │ records 4 │ nonce 4 │ pages before 4 │ sector 4 │ page size 4
 *     record:   page number 4 │ page │ checksum 4
 *
 * `records` is all ones when the writer never synced: the length of the file decides. A record
 * whose checksum is wrong was being written when the writer stopped, so its page was not yet
 * changed: playback ends there. Several headers may follow each other in one journal.
 */
#include "store/store_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char journal_magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};

enum { JOURNAL_HEADER = 28, MOST_BYTES = 1 << 30 };

struct image {
    unsigned char *bytes; /* sqlite3_malloc64: SQLite frees it in the end */
    size_t count, capacity;
};

static uint32_t number(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int read_whole(const char *path, struct image *ret_image)
{
    struct stat st;
    struct image image = {NULL, 0, 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int code = fstat(fd, &st) ? -errno : st.st_size > MOST_BYTES ? -EFBIG : 0;
    if (code == 0) {
        image.capacity = (size_t)st.st_size;
        image.bytes = sqlite3_malloc64(image.capacity + 1);
        code = image.bytes ? 0 : -ENOMEM;
    }
    while (code == 0 && image.count < image.capacity) {
        ssize_t got = read(fd, image.bytes + image.count, image.capacity - image.count);
        if (got <= 0) {
            code = got < 0 ? -errno : 0;
            break;
        }
        image.count += (size_t)got;
    }
    close(fd);
    if (code)
        sqlite3_free(image.bytes);
    else
        *ret_image = image;
    return code;
}

/* The checksum samples every 200th byte, as SQLite's does. */
static uint32_t checksum(const unsigned char *page, size_t page_bytes, uint32_t nonce)
{
    for (size_t i = page_bytes - 200; i > 0 && i < page_bytes; i -= 200)
        nonce += page[i];
    return nonce;
}

/* Puts one old page back, at its place and no further than the database once was. */
static void restore_page(struct image *db, const unsigned char *record, size_t page_bytes,
                         uint32_t pages_before)
{
    uint32_t page = number(record);
    if (page == 0 || page > pages_before)
        return;
    size_t at = (size_t)(page - 1) * page_bytes;
    if (at + page_bytes <= db->capacity) {
        memcpy(db->bytes + at, record + 4, page_bytes);
        if (db->count < at + page_bytes)
            db->count = at + page_bytes;
    }
}

/* The file may have been shorter or longer before the transaction. */
static int make_room(struct image *db, size_t bytes)
{
    if (bytes > MOST_BYTES)
        return -LEAT_E_CORRUPT;
    if (bytes > db->capacity) {
        unsigned char *grown = sqlite3_realloc64(db->bytes, bytes);
        if (!grown)
            return -ENOMEM;
        memset(grown + db->capacity, 0, bytes - db->capacity);
        db->bytes = grown;
        db->capacity = bytes;
    }
    return 0;
}

static int play_back(struct image *db, const struct image *journal)
{
    size_t at = 0, before_bytes = 0;
    while (at + JOURNAL_HEADER <= journal->count) {
        const unsigned char *head = journal->bytes + at;
        if (memcmp(head, journal_magic, sizeof journal_magic))
            break;
        uint32_t records = number(head + 8), nonce = number(head + 12), before = number(head + 16);
        size_t sector = number(head + 20), page_bytes = number(head + 24);
        if (sector < 32 || sector > 65536 || (sector & (sector - 1)) || page_bytes < 512 ||
            page_bytes > 65536 || (page_bytes & (page_bytes - 1)))
            return -LEAT_E_CORRUPT;
        if (at == 0) {
            before_bytes = (size_t)before * page_bytes;
            int code = make_room(db, before_bytes);
            if (code)
                return code;
        }
        at += sector;
        for (uint32_t i = 0; i < records && at + page_bytes + 8 <= journal->count; i++) {
            const unsigned char *record = journal->bytes + at;
            if (number(record + 4 + page_bytes) != checksum(record + 4, page_bytes, nonce))
                goto out;
            restore_page(db, record, page_bytes, before);
            at += page_bytes + 8;
        }
        at = (at + sector - 1) / sector * sector;
    }
out:
    if (at && db->count > before_bytes)
        db->count = before_bytes;
    return 0;
}

int journal_is_hot(const char *path)
{
    char *name = sqlite3_mprintf("%s-journal", path);
    unsigned char head[sizeof journal_magic];
    int hot = 0;
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        hot =
            read(fd, head, sizeof head) == sizeof head && !memcmp(head, journal_magic, sizeof head);
        close(fd);
    }
    sqlite3_free(name);
    return hot;
}

int journal_open_committed(const char *path, sqlite3 **ret_db)
{
    struct image db = {NULL, 0, 0}, journal = {NULL, 0, 0};
    char *name = sqlite3_mprintf("%s-journal", path);
    sqlite3 *opened = NULL;
    int code = name ? read_whole(path, &db) : -ENOMEM;
    if (code == 0 && journal_is_hot(path)) {
        code = read_whole(name, &journal);
        if (code == 0)
            code = play_back(&db, &journal);
    }
    /* A commit had not yet happened: there was no database before this transaction. */
    if (code == 0 && db.count == 0)
        code = -LEAT_E_FOREIGN;
    if (code == 0)
        code = sql_code(sqlite3_open_v2(":memory:", &opened,
                                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL));
    if (code == 0) {
        /* From here on the bytes are SQLite's, also when it fails. */
        code = sql_code(sqlite3_deserialize(
            opened, "main", db.bytes, (sqlite3_int64)db.count, (sqlite3_int64)db.capacity,
            SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY));
        db.bytes = NULL;
    }
    if (code)
        sqlite3_close(opened);
    else
        *ret_db = opened;
    sqlite3_free(db.bytes);
    sqlite3_free(journal.bytes);
    sqlite3_free(name);
    return code;
}
