"""Figures as files of their own, in the colours of whoever looks at them."""

from opacc_ray.lake.store_uris import open_store, split
from opacc_ray.report.rendering import style


def write_alone(drawn: str, uri: str) -> str:
    """Write a figure as an SVG that needs no page; returns its URI."""
    sheet = f"<style>{style('figure.css')}svg {{ background: var(--paper); }}</style>"
    whole = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    folder, name = split(uri)
    store = open_store(folder)
    store.write(name, (whole.replace("<title ", f"{sheet}<title ", 1) + "\n").encode())
    return store.uri_of(name)
