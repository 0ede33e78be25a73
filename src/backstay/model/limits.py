"""How much of anything is accepted."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on input, the same on every engine. What is larger is refused with `TooLarge` and changes nothing."""

    message_bytes: int = 1 << 20
    json_depth: int = 64
    messages_per_record: int = 1_000
    waiting_turns: int = 1_000
    title_bytes: int = 1_024
    tag_bytes: int = 128
    tags: int = 64
    name_bytes: int = 256
    metadata: int = 16
    metadata_name_bytes: int = 256
    metadata_bytes: int = 2_048
    draft_bytes: int = 1 << 20
    chunk_bytes: int = 1 << 20
    blob_bytes: int = 32 << 20
