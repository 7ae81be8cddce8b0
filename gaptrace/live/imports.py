"""Acts on a module right after the program has imported it, without importing it first."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Action = Callable[[ModuleType], None]


class AfterImport(MetaPathFinder):
    """A finder that finds nothing itself: it has the others find, and adds an action to the load.

    Put it first on `sys.meta_path`. The module is found, loaded and named by its own finder and
    loader, so that nothing about it shows that somebody watched.
    """

    def __init__(self, actions: Mapping[str, Action]) -> None:
        self._actions = actions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a watched module by the other finders; see `importlib.abc.MetaPathFinder`."""
        action = self._actions.get(fullname)
        if action is None:
            return None
        for finder in sys.meta_path:
            # Finders of before Python 3.4 have none, and Python passes them over.
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _act_after(spec.loader, fullname, action)
                return spec
        return None


def _act_after(loader: Loader, name: str, action: Action) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        # A loader of zipped packages serves every module of its archive.
        if module.__name__ == name:
            action(module)

    loader.exec_module = exec_module  # type: ignore[method-assign]
