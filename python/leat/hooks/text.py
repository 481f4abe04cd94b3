"""Texts that fit a field of fixed size in the shared memory."""


def _bytes(value):
    return str(value).replace("\0", " ").replace("\n", " ").encode("utf-8", "replace")


def cut(value, size):
    """The beginning that fits `size` bytes with a final NUL, cut between characters."""
    return _bytes(value)[: size - 1].decode("utf-8", "ignore")


def keep_end(value, size):
    """The same, but where the text is too long its end is kept, after "...": the end of a path or
    of a qualified name distinguishes it from others."""
    raw = _bytes(value)
    if len(raw) < size:
        return raw.decode("utf-8")
    return "..." + raw[-(size - 4) :].decode("utf-8", "ignore")
