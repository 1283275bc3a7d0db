-- name: device_partial
-- Communication on the device and its exposed part, by process, group and operation. Each instant is given to one activity: of those that run
-- the one that began first. What nothing of the run's collectives belongs to (a library's own kernels) has neither group nor operation.
WITH known AS (
    SELECT group_id, op, row_number() OVER (ORDER BY group_id, op) + 1 AS part FROM (SELECT DISTINCT group_id, op FROM collective WHERE device_end_ns IS NOT NULL)
), issued AS (
    SELECT proc, device_start_ns AS start_ns, device_end_ns AS end_ns, arg_min(group_id, record) AS group_id, arg_min(op, record) AS op
    FROM collective WHERE device_end_ns IS NOT NULL GROUP BY ALL
), activity AS (
    SELECT k.incarnation, k.rank, coalesce(k.device_uuid, '') AS device, k.proc, k.record, k.start_ns, k.end_ns, k.kernel_class FROM kernel k
    WHERE k.category <> 'cpu_op' AND k.end_ns >= k.start_ns AND k.kernel_class IN ('compute', 'communication')
), talking AS (
    SELECT a.incarnation, a.proc, a.rank, a.device, a.end_ns, coalesce(p.part, 1) AS part,
        greatest(a.start_ns, coalesce(max(a.end_ns) OVER (PARTITION BY a.incarnation, a.proc, a.device ORDER BY a.start_ns, a.end_ns, a.record
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), a.start_ns)) AS start_ns
    FROM activity a LEFT JOIN issued i ON i.proc = a.proc AND i.start_ns = a.start_ns AND i.end_ns = a.end_ns
        LEFT JOIN known p ON p.group_id IS NOT DISTINCT FROM i.group_id AND p.op IS NOT DISTINCT FROM i.op
    WHERE a.kernel_class = 'communication'
), edge AS (
    SELECT incarnation, proc, rank, device, at_ns, sum(work) AS work, sum(part) AS part FROM (
        SELECT incarnation, proc, rank, device, unnest([start_ns, end_ns]) AS at_ns, unnest([1, -1]) AS work, 0 AS part FROM activity WHERE kernel_class = 'compute'
        UNION ALL SELECT incarnation, proc, rank, device, unnest([start_ns, end_ns]), 0, unnest([part, -part]) FROM talking WHERE start_ns < end_ns
    ) GROUP BY ALL
), piece AS (
    SELECT incarnation, proc, rank, device, lead(at_ns) OVER following - at_ns AS ns, sum(work) OVER following > 0 AS is_covered, sum(part) OVER following AS part
    FROM edge WINDOW following AS (PARTITION BY incarnation, proc, rank, device ORDER BY at_ns)
)
SELECT p.incarnation, p.rank, p.device, k.group_id, k.op, CAST(sum(p.ns) AS BIGINT) AS communication_ns,
    CAST(coalesce(sum(p.ns) FILTER (NOT p.is_covered), 0) AS BIGINT) AS exposed_ns, CAST(count(*) AS BIGINT) AS num_pieces
FROM piece p LEFT JOIN known k USING (part) WHERE p.part > 0 GROUP BY ALL;

-- name: device_merge
SELECT incarnation, rank, device, group_id, op, CAST(sum(communication_ns) AS BIGINT) AS communication_ns, CAST(sum(exposed_ns) AS BIGINT) AS exposed_ns,
    CAST(sum(num_pieces) AS BIGINT) AS num_pieces
FROM partial_exposure_device GROUP BY incarnation, rank, device, group_id, op ORDER BY incarnation, rank, device, group_id, op;

-- name: device_times
-- Whether any of the operations has times on the device.
SELECT count(device_end_ns) + count(wait_device_end_ns) > 0 FROM {table};

-- name: live
-- The same of a live run, inside its counted steps, by what was seen: operations between issue and completion, host-visible waits, operations
-- on the device, stalls of its stream. Each instant is given to one operation of those at once under way: the one that began first. What lies
-- in the step that it was issued in is taken whole, of the rest what lies in any counted step. Of a large run the steps of the sample.
WITH steps AS (SELECT proc, incarnation, step, start_ns, end_ns FROM counted_step WHERE {is_chosen}),
seen AS (
    SELECT c.proc, c.incarnation, c.rank, c.step, c.record, c.group_id, c.op, unnest([{kinds}]) AS kind,
        unnest([{begins}]) AS start_ns, unnest([{ends}]) AS end_ns
    FROM {table} c
), apart AS (
    SELECT proc, incarnation, rank, step, kind, group_id, op, end_ns,
        greatest(start_ns, coalesce(max(end_ns) OVER (PARTITION BY proc, incarnation, kind ORDER BY start_ns, end_ns, record
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns)) AS start_ns
    FROM seen WHERE end_ns >= start_ns
), placed AS (
    SELECT a.*, coalesce(a.start_ns >= s.start_ns AND a.end_ns <= s.end_ns, false) AS is_inside
    FROM apart a LEFT JOIN steps s ON s.proc = a.proc AND s.incarnation = a.incarnation AND s.step = a.step WHERE a.start_ns < a.end_ns
), counted AS (
    SELECT incarnation, rank, kind, group_id, op, end_ns - start_ns AS ns FROM placed WHERE is_inside
    UNION ALL SELECT p.incarnation, p.rank, p.kind, p.group_id, p.op, least(p.end_ns, s.end_ns) - greatest(p.start_ns, s.start_ns)
    FROM placed p JOIN steps s ON s.proc = p.proc AND s.incarnation = p.incarnation AND s.start_ns < p.end_ns AND s.end_ns > p.start_ns
    WHERE NOT p.is_inside
)
SELECT incarnation, rank, kind, group_id, op, CAST(sum(ns) AS BIGINT) AS ns, CAST(count(*) AS BIGINT) AS num_pieces
FROM counted GROUP BY ALL ORDER BY incarnation, rank, kind, group_id, op;
