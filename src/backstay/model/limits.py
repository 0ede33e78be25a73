"""Size limits of all input."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on input, the same on every engine. Larger input is rejected with `TooLarge` and changes nothing.

    Args:
        message_bytes: one message, and one streamed body.
        json_depth: nesting of JSON in arguments, results and custom data.
        messages_per_record: messages that one `record` adds.
        waiting_turns: waiting turns of a session.
        title_bytes: the title of a session.
        tag_bytes: one tag.
        tags: tags of a session.
        name_bytes: names of agents and tools, request ids and call ids.
        metadata: metadata entries of a session.
        metadata_name_bytes: the key of a metadata entry.
        metadata_bytes: the value of a metadata entry.
        draft_bytes: a draft.
        chunk_bytes: one chunk of an upload.
        blob_bytes: one attachment.
        document_bytes: the part of an imported document that is in memory: its longest line, or one JSON object.
        sessions_per_owner: a quota: an owner with this many sessions gets `QuotaExceeded`. None means no quota.
        stored_bytes_per_owner: a quota on stored bytes, likewise.
    """

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
    document_bytes: int = 64 << 20
    sessions_per_owner: int | None = None
    stored_bytes_per_owner: int | None = None
