"""The subcommands, one file each; only the command itself imports them."""
