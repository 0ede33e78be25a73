-- Whether a person allowed a call that may have run to be made once more, and whether that was done.
ALTER TABLE calls ADD COLUMN run_again TEXT NOT NULL DEFAULT 'none' CHECK (run_again IN ('none', 'approved', 'used'));
