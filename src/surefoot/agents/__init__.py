"""Whatever acts: policies, networks, agents on disk; knows no task."""
