"""The pictures of a page: made when they are asked for, a few kept, two at a time, so that memory stays bounded."""

import threading
from collections import OrderedDict

from opacc_ray.labels.example_files import ExampleFiles
from opacc_ray.labels.pictures import Picture
from opacc_ray.runs.run import Run

LONGEST = 1600
"""Pixels of the longer side of a view; zooming asks for the whole image."""

AT_ONCE, KEPT_BYTES = 2, 64 << 20


class Views:
    """Pictures of chosen examples, by id."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._files = ExampleFiles(run, run.rounds())
        self._gate = threading.Semaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, bool], Picture] = OrderedDict()

    def picture(self, id: str, *, whole: bool = False) -> Picture:
        """An example as a picture, at most `LONGEST` pixels long unless the ``whole`` is wanted.

        Raises
        ------
        DataError, StorageError
            It cannot be shown, or not be read.
        """
        key = (id, whole)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        with self._gate:
            if id not in self._files.uris:  # of a round that was drawn since
                self._files = ExampleFiles(self._run, self._run.rounds())
            made = self._files.picture(id, None if whole else LONGEST)
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > 1 and sum(len(item.data) for item in self._kept.values()) > KEPT_BYTES:
                self._kept.popitem(last=False)
        return made
