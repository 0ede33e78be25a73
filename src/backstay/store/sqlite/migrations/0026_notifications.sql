-- Notifications to other programs: those that were given up, and those that are to be sent again.

CREATE INDEX receipts_unsent ON receipts (delivery_id, event) WHERE state IN ('failed', 'waiting', 'unknown');
CREATE INDEX receipts_failed ON receipts (at) WHERE state = 'failed';
