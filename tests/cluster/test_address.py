"""An address without a listener is an error at once."""

import socket

import pytest

from opacc_ray.cluster.session import check_address
from opacc_ray.errors import ClusterError


def test_address_that_answers_passes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"http://127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            check_address(address)


@pytest.mark.parametrize("address", ["auto", "local", "https://cluster.example"])
def test_address_without_a_port_is_left_to_ray(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://user:hidden@127.0.0.1:1", "nothing answers at http://***@127.0.0.1:1 "),
        ("127.0.0.1:http", "127.0.0.1:http is no address"),
    ],
)
def test_address_that_leads_nowhere_is_refused(address: str, message: str) -> None:
    with pytest.raises(ClusterError) as error:
        check_address(address)
    assert str(error.value).startswith(message)
    assert "hidden" not in str(error.value)
