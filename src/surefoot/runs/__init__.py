"""Everything that owns a run directory."""
