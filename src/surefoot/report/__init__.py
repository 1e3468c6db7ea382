"""What people read: sentences, tables, figures."""
