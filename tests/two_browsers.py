"""``PYTHONPATH=tests python -m two_browsers [LABELS]``: two people label many pictures at once, in a browser each.

Both use the keys of `opacc label`. They reload the page, go on in a second tab and come back, and the server is killed
and started again. In the end every label is what its picture shows, and each is saved once. It prints the times from a
key to the next picture, and how busy the machine was.
"""

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from labelled_pages import CLASSES, run_to_label
from logged import label_files
from playwright.sync_api import Error, sync_playwright
from real_browser import launched

from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.labels.page.serve import TOKEN
from opacc_ray.runs.run import Run

SECRET, KILLS = "two-browsers-one-token", 3
RELOAD_EVERY, TAB_EVERY, IN_TAB = 150, 400, 15
"""Labels between reloads and between second tabs, and labels given in one of these."""

SHOWN = "#work:not([hidden]) #stage[aria-busy=false]"
CLOCK = """(() => {
  let key = null, number = null
  addEventListener("keydown", () => {
    key ??= performance.now()
    number = document.querySelector("#stage")?.dataset.number
  }, true)
  addEventListener("DOMContentLoaded", () => {
    const stage = document.querySelector("#stage")
    new MutationObserver(() => {
      if (key === null || stage.dataset.number === number || stage.getAttribute("aria-busy") !== "false") return
      window.took = performance.now() - key
      key = null
    }).observe(stage, { attributes: true })
  })
})()"""
"""Times the page itself, from a key to the next picture: without the program that presses the keys."""

GREY = """() => {
  const canvas = new OffscreenCanvas(1, 1), context = canvas.getContext("2d")
  context.drawImage(document.querySelector("#picture"), 0, 0, 1, 1)
  return context.getImageData(0, 0, 1, 1).data[0]
}"""


def main() -> None:
    num = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    with tempfile.TemporaryDirectory() as home:
        run = run_to_label(home, num, CLASSES)
        port = free_port()
        server = start(run, port)
        address = f"http://127.0.0.1:{port}/{SECRET}/"
        begun = time.monotonic()
        try:
            with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as people:
                labelling = [people.submit(label, address, name) for name in ("ann", "bob")]
                for kill in range(1, KILLS + 1):
                    while saved(run) < num * kill // (KILLS + 1) and not any(person.done() for person in labelling):
                        time.sleep(0.5)
                    server.kill()
                    server.wait()
                    time.sleep(1)
                    server = start(run, port)
                found = sorted(seconds for person in labelling for seconds in person.result())
            took = time.monotonic() - begun
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)
        check(run, num)
    median, worst = found[len(found) // 2], found[int(0.95 * len(found))]
    print(
        f"{num} labels by two browsers in {took:.0f} s, none lost, none twice; {KILLS} kills of the server; "
        f"from a key to the next picture: median {1000 * median:.0f} ms, 95 % within {1000 * worst:.0f} ms; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def start(run: Run, port: int) -> "subprocess.Popen[str]":
    """Start the server, and wait until it announces its address."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    command = [sys.executable, "-m", "opacc_ray", "label", run.uri, "--port", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment | {TOKEN: SECRET}
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert re.search(r"http://\S+/", line), line + process.stderr.read()
    return process


def saved(run: Run) -> int:
    return len(label_files(Run.open(run.uri), 1))


def check(run: Run, num: int) -> None:
    """Every example has one label, which is that of its grey, and no answer was saved twice."""
    [only] = read_rounds(Run.open(run.uri))
    labels = dict(zip(only.known.ids, only.truth, strict=True))
    width = max(3, len(str(num - 1)))
    expected = {f"{i:0{width}d}.png": CLASSES[i % 256 % 3] for i in range(num)}
    assert labels == expected, f"{len(labels)} of {num} labels, or another one than the picture shows"
    assert saved(run) == num, f"{saved(run)} answers for {num} labels"


def label(address: str, name: str) -> list[float]:
    """Label until nothing is left; return the seconds from each key to the next picture."""
    found = list[float]()
    with sync_playwright() as playwright:
        browser = launched(playwright.chromium)
        context = browser.new_context(reduced_motion="reduce")
        context.add_init_script(CLOCK)
        page, done = opened(context, address, name), 0
        while answer(page, found):
            done += 1
            if done % RELOAD_EVERY == 0:
                reload(page)
            if done % TAB_EVERY == 0:
                tab = opened(context, address, name)
                for _ in range(IN_TAB):
                    answer(tab, found)
                tab.close()
        browser.close()
    return found


def opened(context: Any, address: str, name: str) -> Any:
    page = context.new_page()
    while True:
        try:
            page.goto(address)
            page.wait_for_selector(f"#namefield:focus, {SHOWN}, #end:not([hidden])")
            break
        except Error:  # the server is away
            time.sleep(0.5)
    if page.locator("#namefield").is_visible():
        page.keyboard.type(name)
        page.keyboard.press("Enter")
    return page


def reload(page: Any) -> None:
    """Load the page again; while the server is away, try until it is back."""
    while True:
        try:
            page.reload()
            page.wait_for_selector(f"{SHOWN}, #end:not([hidden])")
            return
        except Error:
            time.sleep(0.5)


def answer(page: Any, found: list[float]) -> bool:
    """Answer what is shown by what is seen; False at the end. What another tab has answered meanwhile is kept."""
    page.wait_for_selector(f"{SHOWN}, #end:not([hidden])")
    if page.locator("#end").is_visible():
        return False
    number = page.get_attribute("#stage", "data-number")
    key = str(1 + page.evaluate(GREY) % 3)
    after = f"{SHOWN}:not([data-number='{number}'])"
    tries = 0
    while page.get_attribute("#stage", "data-number") == number and not page.locator("#end").is_visible():
        page.keyboard.press("Enter" if page.locator("#ask").is_visible() else key)
        tries += 1
        with suppress(Error):  # a timeout: the answer was lost with the server
            page.wait_for_selector(f"{after}, #end:not([hidden])", timeout=5000 if tries == 1 else 1000)
    if tries == 1 and not page.locator("#end").is_visible():
        found.append(page.evaluate("window.took") / 1000)
    return True


if __name__ == "__main__":
    main()
