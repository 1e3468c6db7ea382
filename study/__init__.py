"""The paper's figures and tables, drawn from raw numbers in a directory."""
