/* json.c: see json.h. */
#include "base/json.h"

#include "base/mem.h"
#include "base/path.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json_parse(const char *text, size_t bytes, json_t **ret_object, struct leat_err *err)
{
    json_error_t where;
    json_t *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!value)
        return err_set(err, -LEAT_E_CORRUPT, "it is not whole JSON: line %d, %s", where.line,
                       where.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return err_set(err, -LEAT_E_FOREIGN, "it holds JSON, but not an object");
    }
    *ret_object = value;
    return 0;
}

int json_read_file(const char *path, size_t most_bytes, json_t **ret_object, struct leat_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int result = path_read_file(path, most_bytes, &text, &bytes, err);
    if (result < 0)
        return result;
    struct leat_err why = {""};
    result = json_parse(text, bytes, ret_object, &why);
    mem_free(text);
    return result < 0 ? err_set(err, result, "%s cannot be read: %s.", path, why.text) : 0;
}

char *json_to_text(const json_t *value)
{
    return json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
}

char *json_to_line(const json_t *value)
{
    return json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(12));
}

int json_write_file(const char *path, const json_t *value, struct leat_err *err)
{
    char *text = json_to_text(value);
    if (!text)
        return err_set(err, -ENOMEM, "Out of memory while writing %s.", path);
    int result = path_write_file(path, text, strlen(text), err);
    free(text);
    return result;
}

const json_t *json_find(const json_t *object, const char *path)
{
    char key[128];
    while (object) {
        size_t length = strcspn(path, ".");
        if (length >= sizeof key)
            return NULL;
        memcpy(key, path, length);
        key[length] = 0;
        object = json_object_get(object, key);
        if (!path[length])
            return object;
        path += length + 1;
    }
    return NULL;
}

const char *json_find_text(const json_t *object, const char *path, const char *otherwise)
{
    const char *text = json_string_value(json_find(object, path));
    return text ? text : otherwise;
}

double json_find_number(const json_t *object, const char *path, double otherwise)
{
    const json_t *value = json_find(object, path);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

json_t *json_number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *json_text_or_null(const char *text)
{
    json_t *value = text ? json_string(text) : json_null();
    return value ? value : json_null(); /* not UTF-8: left out */
}
