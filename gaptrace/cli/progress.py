"""A progress bar on stderr, and only on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def percentage_bar(description: str) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs, and give the function that sets its percentage.

    The bar is gone afterwards; where stderr is no terminal there is none.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=100)
        yield lambda percentage: bar.update(task, completed=percentage)


@contextmanager
def working(description: str) -> Iterator[None]:
    """Show that something goes on while the block runs, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield
