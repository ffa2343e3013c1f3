"""Threads in the background have a lower priority."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from opacc_ray.extract.machine import BACKGROUND_NICENESS, yield_to_others

LOWEST = 19


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def niceness_of_a_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(niceness).result()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")
def test_only_a_thread_and_its_children_lower_their_priority() -> None:
    before = niceness()
    with ThreadPoolExecutor(1, initializer=yield_to_others) as behind:
        own, started = behind.submit(niceness).result(), behind.submit(niceness_of_a_thread).result()
    assert own == started == min(before + BACKGROUND_NICENESS, LOWEST)
    assert niceness() == niceness_of_a_thread() == before
