"""Loads leat into a Python process: `leat run` puts this folder first on PYTHONPATH.

Every Python of the run imports this module at start-up. It removes its folder from sys.path,
watches for the import of torch, and runs the sitecustomize that Python would have found without it.
Child processes inherit PYTHONPATH.

Imports are not changed. A finder in sys.meta_path asks the other finders for a module and passes on
what they answer, with a loader that calls leat after the module has been executed. The module gets
its original loader before it is executed.

`import leat` finds what it finds without this file. Only if that is nothing, a folder without
__init__.py, or another leat, it gets the package in the folder of this file, so that a script can
import leat in an interpreter where it is not installed. If the script has a module leat of its own,
the hooks are imported under the name PRIVATE.
"""

import sys

PRIVATE = "_leat_hooks"


def _begin():
    import os

    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [
        entry
        for entry in sys.path
        if not (isinstance(entry, str) and entry.endswith("_inject") and _same(entry, folder))
    ]
    sys.path_importer_cache.pop(folder, None)
    if os.environ.get("LEAT_SOCKET"):
        sys.meta_path.insert(0, _Finder(os.path.dirname(folder)))
    elif os.environ.get("LEAT_BENCH"):
        finder = _Finder(os.path.dirname(folder), "bench.agent")
        finder.watched = {"torch": "install"}
        sys.meta_path.insert(0, finder)


def _same(entry, folder):
    import os

    return os.path.abspath(entry) == folder


class _Finder:
    """Calls leat when the modules in `watched` have been imported."""

    def __init__(self, package, hooks="hooks.install"):
        self.package = package
        self.hooks = hooks
        self.watched = {
            "torch": "install",
            "torch._dynamo.callback": "dynamo_imported",
            "torch._dynamo.eval_frame": "dynamo_imported",
            "torch._dynamo.output_graph": "dynamo_imported",
            "torch._dynamo.variables.optimizer": "dynamo_imported",
            "torch.distributed.checkpoint.state_dict_saver": "saver_imported",
            "safetensors.torch": "saver_imported",
        }

    def find_spec(self, name, path=None, target=None):
        if name == PRIVATE:
            return self.own_spec(name)
        if name == "leat":
            spec = self.ask_others(name, path, target)
            return spec if self.is_users(spec) else self.own_spec(name)
        if name not in self.watched:
            return None
        spec = self.ask_others(name, path, target)
        try:
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, name, self)
        except Exception:
            pass
        return spec

    def ask_others(self, name, path=None, target=None):
        for finder in list(sys.meta_path):
            if finder is self:
                continue
            find = getattr(finder, "find_spec", None)
            if find is None:
                return None  # the import system calls it in its own way, or skips it
            spec = find(name, path, target)
            if spec is not None:
                return spec
        return None

    def is_users(self, spec):
        """Whether a spec of `leat` is of the user's own module, and not of an installed leat."""
        try:
            import os

            if spec is None or not spec.has_location:
                return False
            return not any(
                os.path.exists(os.path.join(folder, "_inject", "sitecustomize.py"))
                for folder in spec.submodule_search_locations or ()
            )
        except Exception:
            return False

    def own_spec(self, name):
        try:
            import os
            from importlib.util import spec_from_file_location

            return spec_from_file_location(
                name,
                os.path.join(self.package, "__init__.py"),
                submodule_search_locations=[self.package],
            )
        except Exception:
            return None

    def hooks_name(self):
        imported = sys.modules.get("leat")
        if imported is not None:
            spec = getattr(imported, "__spec__", None)
        else:
            spec = self.ask_others("leat")
        return f"{PRIVATE if self.is_users(spec) else 'leat'}.{self.hooks}"

    def imported(self, name, module):
        try:
            hook = self.watched.pop(name, None)
            if hook:
                from importlib import import_module

                getattr(import_module(self.hooks_name()), hook)(module)
        except Exception:
            pass


class _Loader:
    """Stands for another loader until that executes its module, then calls leat. Only its own
    attributes are set: nothing is assumed of the other loader."""

    def __init__(self, loader, name, finder):
        self._leat = loader, name, finder

    @property
    def __class__(self):
        return type(self._leat[0])

    def __getattr__(self, name):
        value = getattr(self._leat[0], name)
        if name == "exec_module":
            return self._execute
        return value

    def _execute(self, module):
        loader, name, finder = self._leat
        try:
            spec = module.__spec__
            if spec.loader is self:
                spec.loader = loader
            if module.__loader__ is self:
                module.__loader__ = loader
        except Exception:
            pass
        loader.exec_module(module)
        finder.imported(name, module)


def _chain():
    """Runs the sitecustomize that this one hides. Its errors are reported as without leat; if there
    is none, site.py expects the ImportError below."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _begin()
except Exception:
    pass
_chain()
