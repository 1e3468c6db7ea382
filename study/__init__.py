"""The paper's figures and tables, drawn from raw numbers that lie in a folder."""
