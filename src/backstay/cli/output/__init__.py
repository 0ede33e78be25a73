"""The output of commands: tables, documents, errors, exit statuses."""
