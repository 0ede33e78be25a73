"""The bytes of attachments in a document."""

from hashlib import sha256

from backstay.errors import TooLarge
from backstay.model.export import Export
from backstay.model.inspection.complaint import require
from backstay.model.limits import Limits


def check_attachments(export: Export, limits: Limits) -> None:
    """Raise unless exactly the bytes are here that messages and waiting turns refer to."""
    here: set[str] = set()
    for index, blob in enumerate(export.attachments):
        place = f"$.attachments[{index}]"
        if len(blob.data) > limits.blob_bytes:
            raise TooLarge(f"{place} has {len(blob.data):,} bytes; at most {limits.blob_bytes:,} are accepted")
        require(sha256(blob.data).hexdigest() == blob.hash, place, "has other bytes than its hash says")
        require(blob.hash not in here, place, "is here twice")
        here.add(blob.hash)
    wanted = set(export.attached())
    require(wanted <= here, "$.attachments", f"do not hold {next(iter(wanted - here), '')}")
    require(here <= wanted, "$.attachments", f"hold {next(iter(here - wanted), '')}, which nothing refers to")
