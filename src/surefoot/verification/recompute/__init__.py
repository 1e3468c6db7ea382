"""An independent recomputation of everything a certificate states."""
