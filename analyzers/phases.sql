-- name: phases
-- Time of each rank in spans of one kind and name during its counted steps; nested and parallel spans of a kind count each instant once.
WITH spans AS (
    SELECT p.proc, p.rank, p.kind, CASE WHEN p.kind = 'user' THEN p.name END AS name, p.start_ns, p.end_ns,
        max(p.end_ns) OVER (PARTITION BY p.proc, p.kind, CASE WHEN p.kind = 'user' THEN p.name END
            ORDER BY p.start_ns, p.record ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM span p SEMI JOIN counted_step s ON s.proc = p.proc AND s.incarnation = p.incarnation AND s.step = p.step
    WHERE p.end_ns >= p.start_ns
)
SELECT kind, name, rank, CAST(count(*) AS BIGINT) AS num_spans,
    CAST(sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns)))) AS BIGINT) AS union_ns
FROM spans GROUP BY kind, name, rank ORDER BY kind, name, rank;

-- name: phases_partial
SELECT kind, name, rank, CAST(sum(num_spans) AS BIGINT) AS num_spans, CAST(sum(union_ns) AS BIGINT) AS union_ns FROM part_phases GROUP BY ALL;

-- name: phases_merge
SELECT kind, name, rank, CAST(sum(num_spans) AS BIGINT) AS num_spans, CAST(sum(union_ns) AS BIGINT) AS union_ns
FROM partial_phases_phases GROUP BY kind, name, rank ORDER BY kind, name, rank;

-- name: step_time
-- Time of each rank's counted steps.
SELECT rank, CAST(sum(duration_ns) AS BIGINT) AS step_ns, CAST(count(*) AS BIGINT) AS num_steps FROM counted_step GROUP BY rank ORDER BY rank;
