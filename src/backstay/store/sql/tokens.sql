-- name: token_columns
k.id, k.owner, k.name, k.kind, k.created_at, k.expires_at, k.revoked_at, k.access

-- name: add_token
-- A token that exists already stays as it is, revoked or not.
INSERT INTO tokens (id, owner, name, kind, hash, created_at, expires_at, access)
VALUES (:token, :owner, :name, :kind, :hash, :now, :expires_at, :access)
ON CONFLICT (hash) DO NOTHING

-- name: token_by_hash
-- No row: the token is unknown, or it expired long ago.
SELECT {{token_columns}} FROM tokens k WHERE k.hash = :hash

-- name: tokens_of
SELECT {{token_columns}} FROM tokens k
WHERE k.owner = :owner AND k.revoked_at IS NULL AND k.kind <> 'link' ORDER BY k.id

-- name: tokens_of_all
SELECT {{token_columns}} FROM tokens k
WHERE k.revoked_at IS NULL AND k.kind <> 'link' ORDER BY k.id

-- name: revoke_token
-- No row: this owner has no such token, or it was revoked before.
UPDATE tokens SET revoked_at = :now WHERE id = :token AND owner = :owner AND revoked_at IS NULL
RETURNING id

-- name: token_of
-- No row: this owner never had such a token.
SELECT {{token_columns}} FROM tokens k WHERE k.id = :token AND k.owner = :owner

-- name: drop_expired_tokens
DELETE FROM tokens WHERE expires_at IS NOT NULL AND expires_at <= :until
