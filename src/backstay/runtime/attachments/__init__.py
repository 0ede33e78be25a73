"""Attachments of an owner: files that are uploaded and read through the store."""
