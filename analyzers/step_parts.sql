-- name: data
-- Time of each counted step in which a rank waited for data, summed over the ranks.
SELECT d.incarnation, d.step, CAST(sum(d.end_ns - d.start_ns) AS BIGINT) AS data_ns
FROM span d SEMI JOIN counted_step k ON k.proc = d.proc AND k.incarnation = d.incarnation AND k.step = d.step
WHERE d.kind = 'data' AND d.end_ns >= d.start_ns GROUP BY d.incarnation, d.step ORDER BY d.incarnation, d.step;

-- name: communication
-- Host-visible waits of each counted step, each instant of a rank once, summed over the ranks.
WITH waits AS (
    SELECT c.incarnation, c.step, c.wait_begin_ns AS begin_ns, c.wait_end_ns AS end_ns,
        max(c.wait_end_ns) OVER (PARTITION BY c.proc ORDER BY c.wait_begin_ns, c.record ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM collective c SEMI JOIN counted_step k ON k.proc = c.proc AND k.incarnation = c.incarnation AND k.step = c.step
    WHERE c.wait_end_ns >= c.wait_begin_ns AND ($neighbours OR c.op NOT IN ('send', 'recv'))
)
SELECT incarnation, step, CAST(sum(greatest(0, end_ns - greatest(begin_ns, coalesce(before_ns, begin_ns)))) AS BIGINT) AS wait_ns
FROM waits GROUP BY incarnation, step ORDER BY incarnation, step;
