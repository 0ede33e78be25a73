-- name: session_columns
s.id, s.owner, s.state, s.revision, s.context, s.fence, s.last_event, s.held_event, s.window_id AS window, s.start, s.length,
s.holder, s.lease_until, s.lease_boot, s.lease_ms, s.running_id AS running, s.cancelling, s.waiting, s.steering, s.queued, s.turns,
s.activity, s.touched_at, s.preview, s.title, s.title_by, s.pinned, s.archived, s.tags, s.family, s.place, s.source_id AS source,
s.idle_ttl, s.expires_by, s.created_at, s.active_at, s.ended_at, s.metadata, s.agent, s.held, s.text_bytes

-- name: session_row
-- The session's row. No row: no such session of this owner.
SELECT {{session_columns}} FROM sessions s WHERE s.id = :session AND s.owner = :owner AND s.state <> 'deleted'

-- name: session_rows
-- The rows of several sessions, those of this owner among them. They are found by their ids, not by the owner.
SELECT {{session_columns}} FROM sessions s
WHERE {{among_sessions}} AND s.owner || '' = :owner AND s.state <> 'deleted'

-- name: write_session_row
-- Writes back the columns that a verb may have changed. No row changed: another transaction wrote the session since.
UPDATE sessions SET
    revision = :revision, context = :context, fence = :fence, last_event = :last_event, held_event = :held_event,
    window_id = :window, start = :start, length = :length, holder = :holder, lease_until = :lease_until,
    lease_boot = :lease_boot, lease_ms = :lease_ms, running_id = :running, cancelling = :cancelling, waiting = :waiting,
    steering = :steering, queued = :queued, turns = :turns, activity = :activity, touched_at = :touched_at,
    preview = :preview, held = :held, text_bytes = :text_bytes
WHERE id = :session AND fence = :found_fence AND last_event = :found_event

-- name: write_holder_columns
-- The same for the columns that most writes of a lease holder change. No index contains them.
UPDATE sessions SET
    revision = :revision, context = :context, fence = :fence, last_event = :last_event, held_event = :held_event,
    lease_until = :lease_until, lease_boot = :lease_boot, waiting = :waiting, steering = :steering,
    touched_at = :touched_at
WHERE id = :session AND fence = :found_fence AND last_event = :found_event

-- name: write_append_columns
-- The same for the columns that finished messages change in an idle session.
UPDATE sessions SET
    revision = :revision, context = :context, last_event = :last_event, length = :length, turns = :turns,
    activity = :activity, touched_at = :touched_at, preview = :preview, text_bytes = :text_bytes
WHERE id = :session AND fence = :found_fence AND last_event = :found_event

-- name: move_up
-- Moves the session up in the list.
UPDATE sessions SET active_at = :active_at WHERE id = :session

-- name: create_session
INSERT INTO sessions (
    id, owner, state, revision, context, fence, last_event, held_event, window_id, start, length, touched_at, preview,
    title, title_by, family, place, source_id, idle_ttl, expires_by, created_at, active_at, metadata, agent
) VALUES (
    :session, :owner, 'open', :revision, :context, 0, :last_event, 0, :window, :start, :length, :now, :preview,
    :title, :title_by, :family, :place, :source, :idle_ttl, :expires_by, :now, :now, :metadata, :agent
)

-- name: address
-- The session behind an address. No row: there is none.
SELECT session_id AS session, generation, spelling FROM addresses WHERE owner = :owner AND key = :key

-- name: session_at
-- The session behind an address, with its row. No row: the address is new, or its session was deleted.
SELECT {{session_columns}}, a.generation, a.spelling FROM addresses a JOIN sessions s ON s.id = a.session_id
WHERE a.owner = :owner AND a.key = :key AND s.owner = :owner AND s.state <> 'deleted'

-- name: set_address
-- Points an address to a session. No row changed: another transaction pointed it elsewhere since it was read.
INSERT INTO addresses (owner, key, spelling, session_id, generation)
VALUES (:owner, :key, :spelling, :session, :generation)
ON CONFLICT (owner, key) DO UPDATE SET session_id = excluded.session_id, generation = excluded.generation
WHERE addresses.session_id = :before

-- name: addresses_of
SELECT spelling FROM addresses WHERE session_id = :session AND owner = :owner ORDER BY spelling

-- name: addresses_beside
-- The addresses of the session behind an address, itself among them. No row: the address leads nowhere.
SELECT b.spelling FROM addresses a JOIN addresses b ON b.session_id = a.session_id AND b.owner = a.owner
WHERE a.owner = :owner AND a.key = :key ORDER BY b.spelling

-- name: set_ttl
UPDATE sessions SET idle_ttl = :idle_ttl, expires_by = :expires_by WHERE id = :session

-- name: set_labels
UPDATE sessions SET
    title = :title, title_by = :title_by, pinned = :pinned, archived = :archived, tags = :tags, metadata = :metadata
WHERE id = :session

-- name: set_agent
UPDATE sessions SET agent = :agent WHERE id = :session

-- name: close_session
-- Ends or expires a session permanently.
UPDATE sessions SET state = :state, ended_at = :ended_at WHERE id = :session

-- name: revision
-- No row: no such session of this owner.
SELECT revision FROM sessions WHERE id = :session AND owner = :owner AND state <> 'deleted'

-- name: newest_sessions
-- All sessions of an owner, newest first.
SELECT {{session_columns}} FROM sessions s
WHERE s.owner = :owner AND s.state <> 'deleted' AND (s.active_at, s.id) < (:active_at, :id)
ORDER BY s.active_at DESC, s.id DESC LIMIT :limit

-- name: list_sessions
-- Those that pass a filter. One that is NULL passes everything.
SELECT {{session_columns}} FROM sessions s
WHERE {{on_list}}
ORDER BY s.active_at DESC, s.id DESC LIMIT :limit

-- name: list_sessions_of_agent
-- The same, of one agent: read from an index that holds them in this order.
SELECT {{session_columns}} FROM sessions s
WHERE s.agent = :agent AND {{on_list}}
ORDER BY s.active_at DESC, s.id DESC LIMIT :limit

-- name: list_sessions_of_place
-- The same, with one place.
SELECT {{session_columns}} FROM sessions s
WHERE s.place = :place AND {{on_list}}
ORDER BY s.active_at DESC, s.id DESC LIMIT :limit

-- name: on_list
s.owner = :owner AND s.state <> 'deleted'
    AND (s.active_at, s.id) < (:active_at, :id)
    AND (s.pinned = :pinned OR :pinned IS NULL)
    AND (s.archived = :archived OR :archived IS NULL)
    AND (s.family = :family OR :family IS NULL)
    AND (s.place = :place OR :place IS NULL)
    AND (s.agent = :agent OR :agent IS NULL)
    AND ({{has_tag}} OR :tag IS NULL)
    AND ({{has_state}} OR :state IS NULL)

-- name: sessions_between
-- Sessions of an owner whose ids are between two texts, oldest first.
SELECT {{session_columns}} FROM sessions s
WHERE s.owner = :owner AND s.state <> 'deleted' AND s.id >= :low AND s.id < :high ORDER BY s.id LIMIT :limit

-- name: sessions_ending
-- Sessions of an owner whose ids end with some letters, none of which is a wildcard; the older first.
SELECT {{session_columns}} FROM sessions s
WHERE s.owner = :owner AND s.state <> 'deleted' AND s.id LIKE :pattern ORDER BY s.id LIMIT :limit

-- name: has_tag
EXISTS (SELECT 1 FROM json_each(s.tags) WHERE value = :tag)

-- name: expiry
-- When a session expires, if that is now or in the past.
min(coalesce(s.touched_at + s.idle_ttl, :now + 1), coalesce(s.expires_by, :now + 1))

-- name: has_state
:state = CASE
    WHEN s.state <> 'open' THEN s.state
    WHEN s.running_id IS NULL AND s.waiting = 0
        AND {{expiry}} <= :now THEN 'expired'
    ELSE 'open' END

-- name: count_sessions
SELECT count(*) FROM sessions WHERE state <> 'deleted'

-- name: lapsed_sessions
-- Open sessions that have expired, without running or waiting turns.
SELECT {{session_columns}} FROM sessions s
WHERE s.state = 'open' AND (s.idle_ttl IS NOT NULL OR s.expires_by IS NOT NULL)
    AND s.running_id IS NULL AND s.waiting = 0
    AND {{expiry}} <= :now
LIMIT :limit

-- name: forecast
-- Counts the effects of a collection now: sessions to expire and to delete, blobs to drop, and turns to fold.
SELECT
    (SELECT count(*) FROM sessions s WHERE s.state = 'open' AND (s.idle_ttl IS NOT NULL OR s.expires_by IS NOT NULL)
        AND s.running_id IS NULL AND s.waiting = 0 AND {{expiry}} <= :now) AS expired,
    (SELECT count(*) FROM sessions WHERE state IN ('ended', 'expired') AND ended_at < :closed) AS deleted,
    (SELECT count(*) FROM ({{forgotten_blobs}}) forgotten) AS blobs,
    (SELECT count(*) FROM turns t JOIN sessions s ON s.id = t.session_id
        WHERE t.first_event IS NOT NULL AND t.state = 'ended' AND t.ended_at <= :fold AND s.state <> 'deleted') AS folded

-- name: closed_before
-- Sessions that ended or expired before this moment.
SELECT id AS session, owner FROM sessions WHERE state IN ('ended', 'expired') AND ended_at < :moment ORDER BY ended_at LIMIT :limit

-- name: running_sessions
-- Sessions with a running turn, in order of id.
SELECT {{session_columns}} FROM sessions s WHERE s.running_id IS NOT NULL AND s.id > :after ORDER BY s.id LIMIT :limit

-- name: bury_session
-- Leaves a tombstone: no text, only the numbers that open streams need.
UPDATE sessions SET
    state = 'deleted', revision = revision + 1, fence = fence + 1, last_event = last_event + 1, length = 0,
    holder = NULL, lease_until = NULL, lease_boot = NULL, lease_ms = NULL, running_id = NULL, cancelling = 0, waiting = 0,
    steering = 0, held = 0, preview = NULL, title = NULL, title_by = NULL, tags = '[]', family = NULL, place = NULL,
    metadata = '{}', agent = NULL, text_bytes = 0, ended_at = :now
WHERE id = :session RETURNING last_event AS number, fence

-- name: session_row_or_tombstone
-- A session's row, deleted or not. No row: no such session of this owner.
SELECT {{session_columns}} FROM sessions s WHERE s.id = :session AND s.owner = :owner AND NOT {{is_hidden}}

-- name: head
-- The fence and the number of a session's last event, deleted or not. No row: no such session of this owner.
SELECT COALESCE((
    SELECT e.fence FROM events e WHERE e.session_id = s.id AND e.number <= s.last_event ORDER BY e.number DESC LIMIT 1
), 0) AS fence, s.last_event AS number
FROM sessions s WHERE s.id = :session AND s.owner = :owner AND NOT {{is_hidden}}

-- name: host_of
-- The name of a machine in addresses. No row: its own name.
SELECT host FROM hosts WHERE machine = :machine
