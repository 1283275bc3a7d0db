-- name: data
-- Time of each counted step in which a rank waited for data, summed over the ranks.
SELECT d.incarnation, d.step, CAST(sum(d.end_ns - d.start_ns) AS BIGINT) AS data_ns
FROM span d SEMI JOIN counted_step k ON k.proc = d.proc AND k.incarnation = d.incarnation AND k.step = d.step
WHERE d.kind = 'data' AND d.end_ns >= d.start_ns GROUP BY d.incarnation, d.step ORDER BY d.incarnation, d.step;

-- name: data_merge
SELECT incarnation, step, CAST(sum(data_ns) AS BIGINT) AS data_ns FROM partial_step_parts_data GROUP BY incarnation, step ORDER BY incarnation, step;

-- name: communication_partial
-- Host-visible waits of each counted step, each instant of a rank once, summed over the ranks; the same of operations of whole groups, without
-- sends and receives: waits for a stage's neighbour.
WITH seen AS (
    SELECT c.incarnation, c.proc, c.step, c.record, c.wait_begin_ns AS begin_ns, c.wait_end_ns AS end_ns, unnest([true, false]) AS has_neighbours, c.op
    FROM collective c SEMI JOIN counted_step k ON k.proc = c.proc AND k.incarnation = c.incarnation AND k.step = c.step
    WHERE c.wait_end_ns >= c.wait_begin_ns),
waits AS (
    SELECT *, max(end_ns) OVER (PARTITION BY proc, has_neighbours ORDER BY begin_ns, record ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM seen WHERE has_neighbours OR op NOT IN ('send', 'recv'))
SELECT incarnation, step, has_neighbours, CAST(sum(greatest(0, end_ns - greatest(begin_ns, coalesce(before_ns, begin_ns)))) AS BIGINT) AS wait_ns,
    CAST(count(*) AS BIGINT) AS num_waits
FROM waits GROUP BY incarnation, step, has_neighbours;

-- name: communication_merge
SELECT incarnation, step, has_neighbours, CAST(sum(wait_ns) AS BIGINT) AS wait_ns, CAST(sum(num_waits) AS BIGINT) AS num_waits
FROM partial_step_parts_communication GROUP BY incarnation, step, has_neighbours ORDER BY incarnation, step, has_neighbours;
