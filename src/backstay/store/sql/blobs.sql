-- name: add_upload
INSERT INTO blobs (owner, upload_id, size, created_at) VALUES (:owner, :upload, 0, :now)

-- name: upload
-- No row: no such upload of this owner.
SELECT key, size FROM blobs WHERE upload_id = :upload AND owner = :owner

-- name: add_chunk
INSERT INTO chunks (blob_key, start, bytes) VALUES (:blob, :start, :bytes)

-- name: grow_blob
UPDATE blobs SET size = :size WHERE key = :blob

-- name: blob
-- No row: this owner has no such blob.
SELECT key, size FROM blobs WHERE owner = :owner AND hash = :hash

-- name: name_blob
-- The upload is complete.
UPDATE blobs SET hash = :hash, upload_id = NULL, created_at = :now WHERE key = :blob

-- name: chunk_at
-- The chunk that holds this byte, or if there is none, the last one before it. No row: there is none at all.
SELECT start, bytes FROM chunks WHERE blob_key = :blob AND start <= :start ORDER BY start DESC LIMIT 1

-- name: use_blob
INSERT INTO blob_uses (blob_key, holder_id) VALUES (:blob, :holder) ON CONFLICT DO NOTHING

-- name: release_blobs
-- Returns the blobs that this message or turn referred to.
DELETE FROM blob_uses WHERE holder_id = :holder RETURNING blob_key

-- name: drop_unused_blob
-- Drops the blob if nothing refers to it.
DELETE FROM blobs WHERE key = :blob AND NOT EXISTS (SELECT 1 FROM blob_uses u WHERE u.blob_key = :blob)

-- name: drop_blob
DELETE FROM blobs WHERE key = :blob

-- name: drop_promises
-- An upload of bytes that are stored already keeps them until a message refers to them.
DELETE FROM blob_uses WHERE blob_key = :blob AND holder_id >= 'upl_' AND holder_id < 'upm_'

-- name: refresh_blob
UPDATE blobs SET created_at = :now WHERE key = :blob

-- name: forgotten_blobs
-- Uploads that were never finished, and blobs that no message has used.
SELECT key FROM blobs b WHERE b.created_at < :moment
    AND NOT EXISTS (
        SELECT 1 FROM blob_uses u WHERE u.blob_key = b.key AND (u.holder_id < 'upl_' OR u.holder_id >= 'upm_')
    )
LIMIT :limit

-- name: blob_hash
SELECT hash FROM blobs WHERE key = :blob
