-- Languages: a word is also found by its stem in each language of this store. The index is built again, because it now
-- also contains pairs of characters.

-- Texts up to the key `unstemmed` lack the stems of the current languages. The newest texts get them first.
ALTER TABLE indexed ADD COLUMN languages TEXT[] NOT NULL DEFAULT '{}', ADD COLUMN unstemmed BIGINT NOT NULL DEFAULT 0;

-- The stems of a word; none if it is too common. No word of a text has the prefix of a stem.
CREATE FUNCTION stems(languages text[], word text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT '=' || l.name || ':' || s.stem
    FROM unnest(languages) l (name)
    CROSS JOIN unnest(ts_lexize(CAST('pg_catalog.' || l.name || '_stem' AS regdictionary), word)) s (stem)
$$;

-- The words of a text with their stems in these languages, instead of earlier stems. A text that is too large has none.
CREATE FUNCTION with_stems(languages text[], words tsvector) RETURNS tsvector LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    plain tsvector := ts_delete(words, ARRAY(SELECT w FROM unnest(tsvector_to_array(words)) w WHERE w ^@ '='));
    stems text[] := '{}';
    language text;
    dictionary regdictionary;
BEGIN
    FOREACH language IN ARRAY languages LOOP
        dictionary := CAST('pg_catalog.' || language || '_stem' AS regdictionary);
        stems := stems || ARRAY(
            SELECT '=' || language || ':' || s
            FROM unnest(tsvector_to_array(plain)) w CROSS JOIN unnest(ts_lexize(dictionary, w)) s
        );
    END LOOP;
    RETURN plain || array_to_tsvector(stems);
EXCEPTION WHEN program_limit_exceeded THEN
    RETURN plain;
END $$;

DELETE FROM search;
UPDATE indexed SET key = 0;
