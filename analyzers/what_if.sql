-- name: replayed
-- The processes of the last incarnation that are replayed: of those of one data coordinate and stage, if that is known, the highest rank.
SELECT proc FROM process WHERE incarnation = (SELECT max(incarnation) FROM process)
QUALIFY mesh_pp IS NULL OR row_number() OVER (PARTITION BY mesh_dp, mesh_pp ORDER BY rank DESC, proc DESC) = 1;

-- name: num_staged
-- How many operations of theirs tell a stage and a role.
SELECT CAST(sum(num_staged) AS BIGINT) FROM partial_profile_collectives SEMI JOIN _replayed_process USING (proc);

-- name: operations_partial
-- Every operation of the steps that are replayed that tells its stage, by process and step, numbered in its kind.
WITH counted AS (
    SELECT proc, incarnation, step FROM step SEMI JOIN replayed_process USING (proc) CROSS JOIN replayed_steps o
    WHERE left_out IS NULL AND end_ns >= start_ns AND (step > 0 OR global_step > 1) AND step % o.stride = o.stride // 2),
work AS (
    SELECT proc, incarnation, step, stage, chunk, start_ns, end_ns, record,
        CASE kind WHEN 'microbatch_forward' THEN 'forward-compute' WHEN 'backward' THEN 'backward-compute' ELSE kind END AS kind
    FROM span WHERE stage IS NOT NULL AND end_ns >= start_ns
        AND (kind IN ('microbatch_forward', 'optimizer', 'gc') OR kind = 'backward' AND microbatch IS NOT NULL)
    UNION ALL
    SELECT proc, incarnation, step, stage, chunk, issued_ns, completed_ns, record,
        CASE WHEN op IN ('send', 'recv') THEN CASE role WHEN 'activations' THEN 'forward-' ELSE 'backward-' END || op
            WHEN op LIKE 'all_gather%' THEN 'params-all-gather' WHEN op LIKE 'reduce_scatter%' THEN 'grads-reduce-scatter'
            WHEN role = 'embedding' THEN 'embedding-grads-all-reduce' WHEN role = 'gradients' THEN 'layernorm-grads-all-reduce'
            ELSE 'optimizer-clip-main-grad' END
    FROM collective WHERE stage IS NOT NULL AND role IS NOT NULL AND completed_ns >= issued_ns
        AND (op IN ('send', 'recv', 'all_reduce') OR op LIKE 'all_gather%' OR op LIKE 'reduce_scatter%'))
SELECT w.incarnation, w.proc, w.step, w.stage, w.kind, w.chunk, w.start_ns, w.end_ns,
    CAST(row_number() OVER (PARTITION BY w.incarnation, w.proc, w.step, w.kind ORDER BY w.start_ns, w.end_ns, w.record) - 1 AS BIGINT) AS number
FROM work w SEMI JOIN counted c ON c.proc = w.proc AND c.incarnation = w.incarnation AND c.step = w.step;

-- name: operations_merge
-- Those of the last incarnation by worker; times on the clock of rank 0's host.
WITH places AS (
    SELECT proc, incarnation, rank, boot_id, coalesce(mesh_dp, 0) AS dp FROM process WHERE incarnation = (SELECT max(incarnation) FROM process))
SELECT w.step, p.dp, w.stage, p.rank, w.kind, w.chunk, aligned_ns(p.boot_id, w.start_ns) AS start_ns, aligned_ns(p.boot_id, w.end_ns) AS end_ns, w.number
FROM partial_what_if_operations w JOIN places p ON p.proc = w.proc AND p.incarnation = w.incarnation
ORDER BY w.step, p.dp, w.stage, w.kind, w.number, p.rank, w.proc;
