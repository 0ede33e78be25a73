-- name: add_served_agent
-- An agent that was registered before keeps its first time.
INSERT INTO served_agents (name, first_served_at) VALUES (:name, :now)
ON CONFLICT (name) DO NOTHING

-- name: served_agent
-- No row: no process serves this agent, and none ever has.
SELECT name FROM served_agents WHERE name = :name

-- name: served_agents
SELECT name FROM served_agents ORDER BY name
