"""Exported sessions as documents: values, records on lines, new ids, and the inspection of a document."""
