-- Finds the turns that continue an interrupted one, and the calls about which a person has decided and which have not been
-- made since.
CREATE INDEX turns_continuing ON turns (root_id, event) WHERE root_id <> id;
CREATE INDEX calls_decided ON calls (root_id)
    WHERE ((effect = 'called' AND approval IN ('approved', 'denied')) OR (effect = 'unknown' AND run_again = 'approved'));
