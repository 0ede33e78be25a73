-- Tokens, with which programs and browsers authenticate. Only the SHA-256 of a token is stored.
CREATE TABLE tokens (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner       TEXT COLLATE "C" NOT NULL,
    name        TEXT             NOT NULL,
    kind        TEXT             NOT NULL CHECK (kind IN ('api', 'browser', 'link')),
    hash        BYTEA            NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at  BIGINT           NOT NULL,
    expires_at  BIGINT,
    revoked_at  BIGINT
);

CREATE INDEX tokens_of_owner ON tokens (owner, id);
CREATE INDEX tokens_mortal ON tokens (expires_at) WHERE expires_at IS NOT NULL;
