-- Whether a person allowed one more run of a call that may have run, and whether that run was made.
ALTER TABLE calls ADD COLUMN run_again TEXT NOT NULL DEFAULT 'none' CHECK (run_again IN ('none', 'approved', 'used'));
