"""Size limits of all input."""

import msgspec

# The most bytes that `AgentTurn.read` returns unless the agent allows more.
READ_LIMIT = 32 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on input, the same on every engine. Larger input is rejected with `TooLarge` and changes nothing.

    Args:
        message_bytes: One message, and one streamed body.
        json_depth: Nesting of JSON in arguments, results and custom data.
        messages_per_record: Messages that one `record` adds.
        waiting_turns: Waiting turns of a session.
        title_bytes: The title of a session.
        tag_bytes: One tag.
        tags: Tags of a session.
        name_bytes: Names of agents and tools, request ids and call ids.
        metadata: Metadata entries of a session.
        metadata_name_bytes: The key of a metadata entry.
        metadata_bytes: The value of a metadata entry.
        draft_bytes: A draft.
        chunk_bytes: One chunk of an upload.
        blob_bytes: One attachment.
        document_bytes: The part of an imported document that is in memory: its longest line, or one JSON object.
        schedule_bytes: The text of a schedule.
        schedules_per_owner: Schedules of an owner that have not ended.
        dead_letters: Notifications to one receiver that were given up; older ones are dropped.
        sessions_per_owner: A quota: an owner with this many sessions gets `QuotaExceeded`. None means no quota.
        stored_bytes_per_owner: A quota on stored bytes, likewise.
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
    schedule_bytes: int = 16_384
    schedules_per_owner: int = 200
    dead_letters: int = 1_000
    sessions_per_owner: int | None = None
    stored_bytes_per_owner: int | None = None
