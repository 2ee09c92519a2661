"""Files: arrays with names, written all or nothing and read with suspicion."""
