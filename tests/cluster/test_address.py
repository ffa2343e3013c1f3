"""An address without a listener is an error at once."""

import pytest

from opacc_ray.cluster.session import check_address
from opacc_ray.errors import ClusterError


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
