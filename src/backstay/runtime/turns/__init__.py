"""Running turns: the runner, the agent driver, the recorder, the ledger and the pool of live agents."""
