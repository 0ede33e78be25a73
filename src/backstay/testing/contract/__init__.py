"""The contract: what every store must keep, whatever database it stands on.

A backend's test file subclasses `StoreContract` under a name that pytest collects, and overrides one fixture.
"""

from backstay.testing.contract.base import ContractBase

__all__ = ["StoreContract"]


class StoreContract(ContractBase):
    """Every fact a store must keep true."""
