"""Agents: policies, networks, files; independent of tasks."""
