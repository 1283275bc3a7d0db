-- name: stages
-- Stages that spans tell: asked first, since it costs nothing where there are none.
SELECT DISTINCT stage FROM span WHERE stage IS NOT NULL ORDER BY stage;

-- name: stages_partial
SELECT * FROM part_stages;

-- name: stages_merge
SELECT DISTINCT stage FROM partial_pipeline_stages ORDER BY stage;

-- name: rank_steps_partial
-- Per process and step: its own begin and end, the union of its compute spans, and that of compute, data waits, checkpoints and
-- waits in data-parallel groups; the micro-batches it computed.
WITH work AS (
    SELECT incarnation, proc, step, stage, kind, chunk, microbatch, start_ns, end_ns FROM span
    WHERE end_ns >= start_ns AND step IS NOT NULL AND stage IS NOT NULL AND (kind LIKE 'microbatch%' OR kind IN ('forward', 'backward'))),
pieces AS (
    SELECT incarnation, proc, step, start_ns, end_ns, true AS is_compute FROM work
    UNION ALL SELECT incarnation, proc, step, start_ns, end_ns, false FROM span WHERE end_ns >= start_ns AND kind IN ('data', 'checkpoint')
    UNION ALL SELECT c.incarnation, c.proc, c.step, c.wait_begin_ns, c.wait_end_ns, false FROM collective c
        JOIN (SELECT DISTINCT group_id FROM process_group WHERE mesh_dimension = 'dp') g USING (group_id) WHERE c.wait_end_ns >= c.wait_begin_ns),
ordered AS (
    SELECT *, max(end_ns) OVER (PARTITION BY incarnation, proc, step ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns,
        max(end_ns) FILTER (is_compute) OVER (PARTITION BY incarnation, proc, step, is_compute ORDER BY start_ns, end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS compute_before_ns
    FROM pieces),
busy AS (
    SELECT incarnation, proc, step, sum(greatest(0, end_ns - greatest(start_ns, coalesce(compute_before_ns, start_ns)))) FILTER (is_compute) AS compute_ns,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns)))) AS excused_ns
    FROM ordered GROUP BY ALL),
counts AS (
    SELECT incarnation, proc, step, min(stage) AS stage, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
        count(*) FILTER (kind IN ('microbatch_forward', 'forward')) AS num_forwards, count(DISTINCT chunk) AS num_chunks,
        bool_or(kind = 'microbatch_weight_gradient') AS has_weight_gradients
    FROM work GROUP BY ALL)
SELECT c.incarnation, c.proc, c.step, c.stage, c.start_ns, c.end_ns, CAST(b.compute_ns AS BIGINT) AS compute_ns, CAST(b.excused_ns AS BIGINT) AS excused_ns,
    CAST(c.num_forwards AS BIGINT) AS num_forwards, CAST(c.num_chunks AS BIGINT) AS num_chunks, c.has_weight_gradients
FROM counts c JOIN busy b USING (incarnation, proc, step);

-- name: rank_steps_merge
-- Begin and end on the clock of rank 0's host, where that is known.
SELECT c.incarnation, c.step, s.global_step, p.rank, c.stage, p.boot_id, concat_ws('/', p.mesh_dp, p.mesh_tp, p.mesh_cp, p.mesh_ep) AS pipeline,
    coalesce(aligned_ns(p.boot_id, coalesce(s.start_ns, c.start_ns)), s.start_ns, c.start_ns) AS start_ns,
    coalesce(aligned_ns(p.boot_id, coalesce(s.end_ns, c.end_ns)), s.end_ns, c.end_ns) AS end_ns, c.compute_ns, c.excused_ns,
    c.num_forwards, c.num_chunks, c.has_weight_gradients, s.left_out
FROM partial_pipeline_rank_steps c
JOIN process p ON p.proc = c.proc AND p.incarnation = c.incarnation
LEFT JOIN step s ON s.proc = c.proc AND s.incarnation = c.incarnation AND s.step = c.step
ORDER BY c.incarnation, pipeline, c.step, p.rank;

-- name: layout
SELECT max(pp), max(vpp) FROM run;
