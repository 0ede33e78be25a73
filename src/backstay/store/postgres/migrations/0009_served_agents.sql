-- The agents that a process serves or has served. A message for any other name would wait forever.
CREATE TABLE served_agents (
    name             TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    first_served_at  BIGINT           NOT NULL
);

INSERT INTO served_agents (name, first_served_at)
SELECT agent, min(started_at) FROM turns
WHERE agent IS NOT NULL AND agent <> 'backstay.compactor' AND started_at IS NOT NULL
GROUP BY agent;
