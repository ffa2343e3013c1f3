"""A way to an S3 server that damages what it carries, with headers that fit the damage."""

from collections.abc import Callable

from carrying_proxy import CarryingHandler, CarryingProxy

Damage = Callable[[bytes], bytes]


class DamagingProxy(CarryingProxy):
    """Carries requests to ``endpoint``; the first ``times`` bodies of objects that come back go through ``damage``."""

    def __init__(self, endpoint: str) -> None:
        self.damage: Damage | None = None
        self.times = 0
        super().__init__(endpoint, _Handler)

    def carried(self, body: bytes) -> bytes:
        if self.damage is None or self.times == 0:
            return body
        self.times -= 1
        return self.damage(body)


class _Handler(CarryingHandler):
    server: DamagingProxy

    def do_GET(self) -> None:
        answer, body = self.carry()
        if "list-type" not in self.path and answer.status == 200:
            body = self.server.carried(body)
        self.send_head(answer.status, answer.getheaders(), str(len(body)))
        self.wfile.write(body)
