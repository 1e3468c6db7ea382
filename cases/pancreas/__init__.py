"""An artificial pancreas whose glucose readings are forged."""
