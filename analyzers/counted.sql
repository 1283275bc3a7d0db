-- name: sequences
-- Operations with a row and operations counted, by process, group and kind. Every operation takes a sequence number of its group (a send or
-- receive: of its source, destination and tag), also without a row. The numbers missing before the rows of a step are shared out over the
-- kinds of that step: of the thinned tier, or of all where it has no row there. Imported traces count nothing.
WITH numbered AS (
    SELECT incarnation, proc, group_id, step, op, seq, bytes_in, tier = 'dispatcher' AS is_thin,
        src IS NOT NULL OR dst IS NOT NULL AS is_transfer, CASE WHEN is_transfer THEN hash(src, dst, tag) ELSE 0 END AS pair
    FROM collective WHERE seq IS NOT NULL AND tier IS DISTINCT FROM 'imported'),
gaps AS (
    SELECT *, greatest(0, seq - 1 - lag(seq) OVER (PARTITION BY incarnation, proc, group_id, pair ORDER BY seq)) AS gap FROM numbered),
steps AS (
    SELECT incarnation, proc, group_id, pair, step, sum(gap) AS num_missing, count(*) AS num_rows, count(*) FILTER (WHERE is_thin) AS num_thin
    FROM gaps GROUP BY ALL),
kinds AS (
    SELECT incarnation, proc, group_id, pair, step, op, count(*) AS num_rows, count(*) FILTER (WHERE is_thin) AS num_thin,
        avg(bytes_in) FILTER (WHERE is_thin) AS thin_bytes, avg(bytes_in) AS mean_bytes
    FROM gaps GROUP BY ALL),
shared AS (
    SELECT k.proc, k.group_id, k.op, k.num_rows, coalesce(s.num_missing, 0)
            * CASE WHEN s.num_thin > 0 THEN k.num_thin / s.num_thin ELSE k.num_rows / s.num_rows END AS num_missing,
        CASE WHEN s.num_thin > 0 THEN k.thin_bytes ELSE k.mean_bytes END AS bytes_each
    FROM kinds k JOIN steps s ON s.incarnation = k.incarnation AND s.proc = k.proc AND s.pair = k.pair
        AND s.group_id IS NOT DISTINCT FROM k.group_id AND s.step IS NOT DISTINCT FROM k.step)
SELECT proc, group_id, op, CAST(sum(num_rows) AS BIGINT) AS num_rows, CAST(sum(CAST(num_missing AS DECIMAL(38, 9))) AS DOUBLE) AS num_missing,
    CAST(CASE WHEN bool_and(bytes_each IS NOT NULL OR num_missing = 0) THEN coalesce(sum(CAST(num_missing * bytes_each AS DECIMAL(38, 9))), 0) END AS DOUBLE) AS missing_bytes
FROM shared GROUP BY proc, group_id, op ORDER BY proc, group_id, op;

-- name: sequences_merge
-- Partials are of the processes that have gaps; of the others every operation has a row.
SELECT proc, group_id, op, num_rows, num_missing, missing_bytes FROM (
    FROM partial_counted_sequences
    UNION ALL SELECT proc, group_id, op, CAST(sum(num_numbered) AS BIGINT), 0.0::DOUBLE, 0.0::DOUBLE FROM partial_profile_collectives
    WHERE num_numbered > 0 AND proc NOT IN (SELECT proc FROM partial_counted_sequences) GROUP BY proc, group_id, op)
ORDER BY proc, group_id, op;

-- name: there
-- Rows and bytes by group and kind.
SELECT group_id, op, CAST(count(*) AS BIGINT) AS num_rows, CAST(sum(bytes_in) AS DECIMAL(38, 0)) AS bytes_in
FROM collective GROUP BY group_id, op ORDER BY group_id, op;

-- name: there_merge
SELECT group_id, op, CAST(sum(num_operations) AS BIGINT) AS num_rows, CAST(sum(bytes_in) AS DECIMAL(38, 0)) AS bytes_in
FROM partial_profile_collectives GROUP BY group_id, op ORDER BY group_id, op;
