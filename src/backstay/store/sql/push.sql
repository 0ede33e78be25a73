-- name: push_columns
p.owner, p.number, p.endpoint, p.public_key, p.secret, p.name, p.text, p.created_at

-- name: push_subscriptions_of
SELECT {{push_columns}} FROM push_subscriptions p WHERE p.owner = :owner ORDER BY p.number

-- name: push_subscription_at
SELECT {{push_columns}} FROM push_subscriptions p WHERE p.owner = :owner AND p.endpoint = :endpoint

-- name: push_owners
SELECT DISTINCT p.owner FROM push_subscriptions p ORDER BY p.owner

-- name: add_push_subscription
INSERT INTO push_subscriptions (owner, number, endpoint, public_key, secret, name, text, created_at)
VALUES (:owner, :number, :endpoint, :public_key, :secret, :name, :text, :now)

-- name: set_push_subscription
-- The browser has made new keys, or its owner has chosen anew.
UPDATE push_subscriptions SET public_key = :public_key, secret = :secret, name = :name, text = :text
WHERE owner = :owner AND number = :number

-- name: drop_push_subscription
DELETE FROM push_subscriptions WHERE owner = :owner AND number = :number

-- name: push_choice
SELECT c.done, c.needs_you FROM push_choices c WHERE c.session_id = :session

-- name: set_push_choice
INSERT INTO push_choices (session_id, done, needs_you) VALUES (:session, :done, :needs_you)
ON CONFLICT (session_id) DO UPDATE SET done = :done, needs_you = :needs_you

-- name: drop_push_choice
DELETE FROM push_choices WHERE session_id = :session

-- name: push_key
SELECT k.private_key FROM push_keys k WHERE k.id = 1

-- name: add_push_key
-- Two processes may make one at once: that of the first one is kept.
INSERT INTO push_keys (id, private_key) VALUES (1, :private_key) ON CONFLICT (id) DO NOTHING
