"""Restore the logging of this process: Prefect and Ray replace handlers, levels and filters when they are imported."""

import contextlib
import logging
from collections.abc import Callable, Iterator

WRITTEN_FOR = "Python 3.11 to 3.14"  # `logging._handlerList` has no public name


@contextlib.contextmanager
def logging_restored() -> Iterator[None]:
    """Restore every logger that exists now, and the factory of records, after the body."""
    loggers = [found for found in logging.root.manager.loggerDict.values() if isinstance(found, logging.Logger)]
    restores = [_saved(logger) for logger in (logging.getLogger(), *loggers)]
    factory = logging.getLogRecordFactory()
    with _handlers_kept_open():
        try:
            yield
        finally:
            logging.setLogRecordFactory(factory)
            for restore in restores:
                restore()


def _saved(logger: logging.Logger) -> Callable[[], None]:
    """Return a function that gives the logger and its handlers their present state again."""
    level, propagate, disabled = logger.level, logger.propagate, logger.disabled
    handlers, filters = list(logger.handlers), list(logger.filters)
    details = [(handler.level, handler.formatter, list(handler.filters)) for handler in handlers]

    def restore() -> None:
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled
        logger.handlers[:], logger.filters[:] = handlers, filters
        for handler, (threshold, formatter, its_filters) in zip(handlers, details, strict=True):
            handler.setLevel(threshold)
            handler.setFormatter(formatter)
            handler.filters[:] = its_filters

    return restore


@contextlib.contextmanager
def _handlers_kept_open() -> Iterator[None]:
    """Hide the present handlers from `logging.config.dictConfig` while the body runs.

    Prefect calls it on import. It closes all handlers of the process and removes their names. A closed handler of a
    file with mode `w` writes nothing more, and Python flushes no closed handler when it exits.
    """
    present = list(logging._handlerList)  # type: ignore[attr-defined]
    logging._handlerList.clear()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        logging._handlerList[:0] = present  # type: ignore[attr-defined]
        for reference in present:
            if handler := reference():
                handler.set_name(handler.get_name())  # registers the name again
