-- name: sizes
-- How many rows each step has, over all ranks; -1: what belongs to none.
SELECT incarnation, step, CAST(sum(num) AS BIGINT) AS num_rows FROM (
    SELECT incarnation, coalesce(step, -1) AS step, count(*) AS num FROM step WHERE start_ns IS NOT NULL GROUP BY ALL
    UNION ALL SELECT incarnation, coalesce(step, -1), count(*) FROM span WHERE start_ns IS NOT NULL GROUP BY ALL
    UNION ALL SELECT incarnation, coalesce(step, -1), count(*) FROM collective WHERE issued_ns IS NOT NULL GROUP BY ALL
    UNION ALL SELECT incarnation, coalesce(step, -1), count(*) FROM kernel WHERE start_ns IS NOT NULL AND $kernels GROUP BY ALL
) WHERE step BETWEEN $first AND $last GROUP BY incarnation, step ORDER BY incarnation, step;

-- name: step
SELECT incarnation, coalesce(step, -1) AS step, coalesce(rank, -1) AS rank, proc, start_ns, end_ns, global_step, left_out FROM step
WHERE incarnation = $incarnation AND coalesce(step, -1) BETWEEN $first AND $last AND start_ns IS NOT NULL ORDER BY step, rank, proc;

-- name: span
SELECT incarnation, coalesce(step, -1) AS step, coalesce(rank, -1) AS rank, proc, start_ns, end_ns, record, kind, name FROM span
WHERE incarnation = $incarnation AND coalesce(step, -1) BETWEEN $first AND $last AND start_ns IS NOT NULL ORDER BY step, rank, proc, record;

-- name: kernel
SELECT incarnation, coalesce(step, -1) AS step, coalesce(rank, -1) AS rank, proc, start_ns, end_ns, record, kernel_class, name, stream_id FROM kernel
WHERE incarnation = $incarnation AND coalesce(step, -1) BETWEEN $first AND $last AND start_ns IS NOT NULL ORDER BY step, rank, proc, record;

-- name: collective
SELECT c.incarnation, coalesce(c.step, -1) AS step, coalesce(c.rank, -1) AS rank, c.proc, c.issued_ns, coalesce(c.completed_ns, c.wait_end_ns) AS end_ns, c.record,
    c.group_id, g.kind, c.op, c.seq, c.src, c.dst, c.tag, c.bytes_in, c.dtype, c.state
FROM collective c LEFT JOIN (
    SELECT group_id, any_value(coalesce(mesh_dimension, if(size = (SELECT max(world_size) FROM run), 'world', 'other'))) AS kind FROM process_group GROUP BY group_id
) g USING (group_id)
WHERE c.incarnation = $incarnation AND coalesce(c.step, -1) BETWEEN $first AND $last AND c.issued_ns IS NOT NULL ORDER BY step, rank, c.proc, c.record;

-- name: timeless
-- Rows that tell no time: of them nothing can be placed.
SELECT CAST((SELECT count(*) FROM step WHERE start_ns IS NULL) + (SELECT count(*) FROM span WHERE start_ns IS NULL)
    + (SELECT count(*) FROM collective WHERE issued_ns IS NULL) + (SELECT count(*) FROM kernel WHERE start_ns IS NULL) AS BIGINT);

-- name: clock
SELECT proc, monotonic_ns, wall_ns FROM clock WHERE monotonic_ns IS NOT NULL AND wall_ns IS NOT NULL ORDER BY proc, monotonic_ns;

-- name: run
SELECT * FROM run LIMIT 1;
