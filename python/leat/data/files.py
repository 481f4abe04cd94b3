"""leat.data.Files: one file per sample."""

import fnmatch
import operator
import os

from leat import _engine
from leat.data.values import Value, Values


class Files(Values):
    """One file per sample.

    Files("features", value="npy", pattern="*.npy")     a sample is a tensor
    Files("train", value="npy", labels=True)            a sample is (tensor, label)
    Files(["a.npy", "b.npy"], value="npy", labels=[0, 1])
    files     a folder: all files below it, sorted by name; or a list of paths
    value     what a file holds: "bytes", "str", "int", "npy", "torch", or a type and a shape
    pattern   shell pattern, or several, of the files to take from a folder
    labels    True: the number of the file's folder among the sorted folders directly below `files`,
              as in torchvision's ImageFolder; or a list with one label per file

    classes, class_to_idx and paths hold what was found. The folder is listed once. A file that is
    missing, cut short or of another shape when it is read is a bad sample.
    """

    def __init__(self, files, value="bytes", *, pattern="*", labels=False):
        self.values = [Value(value)]
        self.classes, self.class_to_idx = [], {}
        if isinstance(files, (str, bytes, os.PathLike)):
            root = os.fsdecode(os.fspath(files))
            if labels is True:
                self.paths, self.labels = self._find_classes(root, pattern)
            else:
                self.paths, self.labels = _files_below(root, pattern), None
            if not self.paths:
                raise FileNotFoundError(f"{root} has no files that match pattern={pattern!r}")
        else:
            if labels is True:
                raise ValueError(
                    "labels=True needs a folder; pass a list of labels with a list of files"
                )
            self.paths, self.labels = [os.fsdecode(os.fspath(path)) for path in files], None
        if labels is not True and labels is not False and labels is not None:
            self.labels = tuple(operator.index(label) for label in labels)
        if self.labels is not None:
            if len(self.labels) != len(self.paths):
                raise ValueError(f"{len(self.labels)} labels are given for {len(self.paths)} files")
            self.values.append(Value("int"))
            self.kind = tuple
        self._open()

    def _find_classes(self, root, pattern):
        """(paths, labels), in torchvision's order: sorted folders, in each the sorted files."""
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"{root} has no folders to take labels from")
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        paths, labels = [], []
        for name, number in self.class_to_idx.items():
            found = _files_below(os.path.join(root, name), pattern)
            paths += found
            labels += [number] * len(found)
        return paths, tuple(labels)

    def _make_source(self):
        paths = tuple(os.fsencode(path) for path in self.paths)
        return _engine.source_files(paths, self.labels, self.values[0].codec)


def _files_below(root, pattern):
    """The files below a folder, by sorted folder path, then by sorted name."""
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    if not os.path.isdir(root):
        raise FileNotFoundError(f"{root} is not a folder")
    found = []
    for folder, _, names in sorted(os.walk(root, followlinks=True)):
        for name in sorted(names):
            if any(fnmatch.fnmatchcase(name, one) for one in patterns):
                found.append(os.path.join(folder, name))
    return found
