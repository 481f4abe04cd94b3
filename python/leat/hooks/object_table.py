"""Values for objects that have no attribute for them."""

import itertools
import weakref


class ObjectTable:
    """A value for each object, by identity. Objects are held by weak references; a new object at
    the address of a deleted one has no value."""

    def __init__(self):
        self._known = {}  # id -> (weak reference, value)
        self._numbers = itertools.count()

    def find(self, thing):
        """The value, or None."""
        known = self._known.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        return None

    def number(self, thing):
        """A number for each object, in the order in which they are first asked for."""
        known = self._known.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        number = next(self._numbers)
        self.put(thing, number)
        return number

    def put(self, thing, value):
        address = id(thing)
        known = self._known

        def deleted(reference):
            if address in known and known[address][0] is reference:
                del known[address]

        try:
            known[address] = (weakref.ref(thing, deleted), value)
        except TypeError:  # takes no weak reference: it is kept, with its value
            known[address] = ((lambda: thing), value)
