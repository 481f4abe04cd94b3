"""Loads leat into a Python process: `leat run` puts this folder first on PYTHONPATH.

Every Python of the run imports this module at start-up. It removes its folder from sys.path,
watches for the import of torch, and runs the sitecustomize that Python would have found without it.
Child processes inherit PYTHONPATH.

Imports are not changed. A finder in sys.meta_path asks the other finders for a module and adds a
call of leat's after the module has been executed; the module, its spec and its loader are the
originals. The finder answers only for the name `leat`, with the folder of this file, so that a
script can import leat in an interpreter where it is not installed.
"""

import sys


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
        finder = _Finder(os.path.dirname(folder), "leat.bench.agent")
        finder.watched = {"leat": None, "torch": "install"}
        sys.meta_path.insert(0, finder)


def _same(entry, folder):
    import os

    return os.path.abspath(entry) == folder


class _Finder:
    """Calls leat when the modules in `watched` have been imported."""

    def __init__(self, package, hooks="leat.hooks.install"):
        self.package = package
        self.hooks = hooks
        self.watched = {
            "leat": None,
            "torch": "install",
            "torch._dynamo.callback": "dynamo_imported",
            "torch._dynamo.eval_frame": "dynamo_imported",
            "torch._dynamo.output_graph": "dynamo_imported",
            "torch._dynamo.variables.optimizer": "dynamo_imported",
            "torch.distributed.checkpoint.state_dict_saver": "saver_imported",
            "safetensors.torch": "saver_imported",
        }

    def find_spec(self, name, path=None, target=None):
        if name not in self.watched:
            return None
        if name == "leat":
            return self.own_spec()
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                self.watch(name, spec)
                return spec
        return None

    def own_spec(self):
        try:
            import os
            from importlib.util import spec_from_file_location

            return spec_from_file_location(
                "leat",
                os.path.join(self.package, "__init__.py"),
                submodule_search_locations=[self.package],
            )
        except Exception:
            return None

    def watch(self, name, spec):
        """Replaces the exec_module of the loader for one call."""
        try:
            loader = spec.loader
            run = loader.exec_module

            def exec_module(module):
                try:
                    loader.__dict__.pop("exec_module", None)
                finally:
                    run(module)
                self.imported(name, module)

            loader.exec_module = exec_module
        except Exception:
            pass

    def imported(self, name, module):
        try:
            hook = self.watched.pop(name, None)
            if len(self.watched) == 1:  # only `leat` is left
                self.leave()
            if hook:
                from importlib import import_module

                getattr(import_module(self.hooks), hook)(module)
        except Exception:
            pass

    def leave(self):
        """Removes this finder. `leat` is in sys.modules now, or will be in a moment."""
        import leat  # noqa: F401

        if self in sys.meta_path:
            sys.meta_path.remove(self)


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
