-- name: run
-- What the run says about itself.
SELECT run_id, job_id, owner, project, created_ns, ontology_version, rankscope_version, world_size, dp, tp, pp, cp, ep, sharding, precision
FROM run ORDER BY run_id LIMIT 1;

-- name: processes
-- The processes of every incarnation.
SELECT incarnation, rank, proc, node, host, pid, exit_kind FROM process ORDER BY incarnation, rank, proc;

-- name: ranks
-- Steps of each rank: all that ended, those that count, and the sum of these. A fused optimizer tells only by metric found_inf that it skipped.
SELECT s.incarnation, s.rank, CAST(count(*) AS BIGINT) AS num_steps,
    CAST(count(*) FILTER (WHERE s.left_out IS NULL AND s.step > 0) AS BIGINT) AS num_counted,
    CAST(sum(s.end_ns - s.start_ns) FILTER (WHERE s.left_out IS NULL AND s.step > 0) AS BIGINT) AS counted_ns,
    max(s.end_ns - s.start_ns) FILTER (WHERE s.left_out IS NULL AND s.step > 0) AS longest_ns,
    CAST(count(*) FILTER (WHERE s.is_skipped OR f.step IS NOT NULL) AS BIGINT) AS num_skipped
FROM step s LEFT JOIN (SELECT DISTINCT proc, incarnation, step FROM metric WHERE name = 'found_inf' AND value > 0) f
    ON f.proc = s.proc AND f.incarnation = s.incarnation AND f.step = s.step
WHERE s.end_ns >= s.start_ns GROUP BY s.incarnation, s.rank ORDER BY s.incarnation, s.rank;

-- name: step_durations
-- Durations of the counted steps of all ranks in logarithmic buckets.
SELECT incarnation, rank, log_bucket(duration_ns) AS bucket, CAST(count(*) AS BIGINT) AS num_steps
FROM counted_step GROUP BY ALL ORDER BY ALL;

-- name: longest_steps
-- The longest counted steps; ties by incarnation, step and rank.
SELECT duration_ns, incarnation, step, rank FROM counted_step ORDER BY duration_ns DESC, incarnation, step, rank LIMIT 1;

-- name: step_series
-- The longest duration over the ranks of each counted step, in the order of time, in at most {columns} equal groups of steps.
WITH by_step AS (SELECT incarnation, step, max(duration_ns) AS duration_ns FROM counted_step GROUP BY incarnation, step),
numbered AS (SELECT row_number() OVER (ORDER BY incarnation, step) - 1 AS place, count(*) OVER () AS num_steps, incarnation, step, duration_ns FROM by_step)
SELECT CAST(place * {columns} // greatest(num_steps, {columns}) AS BIGINT) AS column_number, min(step) AS first_step, max(step) AS last_step,
    CAST(sum(duration_ns) // count(*) AS BIGINT) AS mean_ns, max(duration_ns) AS longest_ns
FROM numbered GROUP BY 1 ORDER BY 1;

-- name: boundaries
-- What marked the ends of the steps.
SELECT coalesce(boundary, 'unknown') AS boundary, CAST(count(*) AS BIGINT) AS num_steps FROM step GROUP BY 1 ORDER BY 2 DESC, 1;

-- name: window
-- First and last moment of each process in steps, operations and spans; a process that hangs still lives while its host is read.
SELECT proc, min(first_ns) AS first_ns, max(last_ns) AS last_ns FROM (
    SELECT proc, min(start_ns) AS first_ns, max(end_ns) AS last_ns FROM step GROUP BY proc
    UNION ALL SELECT proc, min(issued_ns), max(coalesce(completed_ns, issued_ns)) FROM collective GROUP BY proc
    UNION ALL SELECT proc, min(start_ns), max(coalesce(end_ns, start_ns)) FROM span GROUP BY proc
    UNION ALL SELECT p.proc, NULL, max(h.time_ns) FROM process p JOIN host_sample h ON h.node = p.node AND h.incarnation = p.incarnation
        WHERE h.time_ns <= p.ended_ns OR p.ended_ns IS NULL GROUP BY p.proc
) GROUP BY proc ORDER BY proc;

-- name: window_merge
SELECT proc, min(first_ns) AS first_ns, max(last_ns) AS last_ns FROM (
    SELECT proc, min(start_ns) AS first_ns, max(end_ns) AS last_ns FROM step GROUP BY proc
    UNION ALL SELECT proc, first_ns, last_ns FROM partial_profile_collectives
    UNION ALL SELECT proc, first_ns, last_ns FROM partial_profile_spans
    UNION ALL SELECT p.proc, NULL, max(h.time_ns) FROM process p JOIN host_sample h ON h.node = p.node AND h.incarnation = p.incarnation
        WHERE h.time_ns <= p.ended_ns OR p.ended_ns IS NULL GROUP BY p.proc
) GROUP BY proc ORDER BY proc;
