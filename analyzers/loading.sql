-- name: stall
-- Of each rank the union of its waits for data inside its steps, by process, and the time from its first step to its last.
WITH waits AS (
    SELECT incarnation, proc, rank, start_ns, end_ns FROM span WHERE kind = 'data' AND end_ns >= start_ns
    UNION ALL
    SELECT incarnation, proc, rank, time_ns - wait_ns, time_ns FROM sample_batch WHERE wait_ns >= 0),
run AS (SELECT incarnation, proc, min(start_ns) AS first_ns, max(end_ns) AS last_ns FROM step WHERE end_ns >= start_ns GROUP BY incarnation, proc),
inside AS (
    SELECT w.incarnation, w.proc, w.rank, r.last_ns - r.first_ns AS run_ns, greatest(w.start_ns, r.first_ns) AS start_ns,
        least(w.end_ns, r.last_ns) AS end_ns
    FROM waits w JOIN run r USING (incarnation, proc)),
ordered AS (
    SELECT *, max(end_ns) OVER (PARTITION BY incarnation, proc ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM inside),
by_process AS (
    SELECT incarnation, proc, rank, max(run_ns) AS run_ns, count(*) AS num_waits,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns)))) AS wait_ns
    FROM ordered GROUP BY incarnation, proc, rank)
SELECT rank, CAST(sum(wait_ns) AS BIGINT) AS wait_ns, CAST(sum(run_ns) AS BIGINT) AS run_ns, CAST(sum(num_waits) AS BIGINT) AS num_waits
FROM by_process GROUP BY rank ORDER BY rank;

-- name: stall_partial
SELECT * FROM part_stall;

-- name: stall_merge
SELECT rank, CAST(sum(wait_ns) AS BIGINT) AS wait_ns, CAST(sum(run_ns) AS BIGINT) AS run_ns, CAST(sum(num_waits) AS BIGINT) AS num_waits
FROM partial_loading_stall GROUP BY rank ORDER BY rank;

-- name: loaders
-- Batches of each loader over all ranks; slow: the step waited more than {slow_ns} ns.
SELECT loader, CAST(count(*) AS BIGINT) AS num_batches, CAST(sum(num_samples) AS BIGINT) AS num_samples,
    max(num_workers) AS num_workers, CAST(count(*) FILTER (WHERE wait_ns > {slow_ns}) AS BIGINT) AS num_slow,
    max(wait_ns) AS longest_ns, CAST(sum(queue_depth) AS BIGINT) AS depth_sum, CAST(count(queue_depth) AS BIGINT) AS num_depths,
    CAST(count(*) FILTER (WHERE queue_depth = 0) AS BIGINT) AS num_empty
FROM sample_batch WHERE wait_ns >= 0 GROUP BY loader ORDER BY num_batches DESC, loader;

-- name: waits
-- Waits for a batch in logarithmic buckets.
SELECT loader, log_bucket(wait_ns) AS bucket, CAST(count(*) AS BIGINT) AS num_batches
FROM sample_batch WHERE wait_ns >= 0 GROUP BY ALL ORDER BY ALL;

-- name: series
-- The longest wait for a batch of each loader in the order of time, in at most {columns} equal groups of batches.
WITH numbered AS (
    SELECT loader, wait_ns, row_number() OVER (PARTITION BY loader ORDER BY time_ns, proc, record) - 1 AS number,
        count(*) OVER (PARTITION BY loader) AS num_batches
    FROM sample_batch WHERE wait_ns >= 0)
SELECT loader, CAST(CASE WHEN num_batches <= {columns} THEN number ELSE number * {columns} // num_batches END AS BIGINT) AS part,
    max(wait_ns) AS wait_ns
FROM numbered GROUP BY ALL ORDER BY ALL;

-- name: epochs
-- Every epoch of every loader on every rank.
SELECT incarnation, loader, epoch, rank, proc, dataset_size, num_samples, num_replicas, replica, num_padded, digest, padding_digest,
    is_complete, drops_last, indices, indices_format, why, is_shuffled
FROM sample_epoch ORDER BY incarnation, loader, epoch, rank, end_ns;

-- name: world
-- Ranks of every incarnation.
SELECT incarnation, CAST(count(DISTINCT coalesce(rank, 0)) AS BIGINT) AS num_ranks FROM process GROUP BY incarnation ORDER BY incarnation;
