/* err.c: the text of each error code. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct leat_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
    }
    return code;
}

const char *err_text(int code)
{
    if (code < 0)
        code = -code;
    switch (code) {
#define X(name, number, text)                                                                      \
    case number: return text;
        LEAT_ERRORS(X)
#undef X
    default: break;
    }
    const char *name = strerrordesc_np(code);
    return name ? name : "unknown error";
}
