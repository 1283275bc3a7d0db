-- name: device
-- Where the time of each rank's device timeline went. From start to start or end of any activity nothing changes: each such piece is given to the set of classes active in it. Integers only, so the parts sum to the whole.
WITH activity AS (
    SELECT incarnation, rank, coalesce(device_uuid, '') AS device, start_ns, end_ns, CAST(kernel_class = 'compute' AS TINYINT) AS k,
        CAST(kernel_class = 'communication' AS TINYINT) AS c, CAST(kernel_class = 'copy' AS TINYINT) AS m FROM kernel
    WHERE category <> 'cpu_op' AND end_ns >= start_ns
), edge AS (
    SELECT incarnation, rank, device, at_ns, sum(coalesce(k, 0) * sign) AS compute, sum(coalesce(c, 0) * sign) AS communication, sum(coalesce(m, 0) * sign) AS copy,
        sum((1 - coalesce(k + c + m, 0)) * sign) AS other FROM (
        SELECT incarnation, rank, device, start_ns AS at_ns, 1 AS sign, k, c, m FROM activity
        UNION ALL SELECT incarnation, rank, device, end_ns, -1, k, c, m FROM activity
    ) GROUP BY incarnation, rank, device, at_ns
), piece AS (
    SELECT incarnation, rank, device, at_ns, lead(at_ns) OVER following - at_ns AS ns, sum(compute) OVER following > 0 AS k,
        sum(communication) OVER following > 0 AS c, sum(copy) OVER following > 0 AS m, sum(other) OVER following > 0 AS o
    FROM edge WINDOW following AS (PARTITION BY incarnation, rank, device ORDER BY at_ns)
)
SELECT p.incarnation, p.rank, p.device, CAST(max(at_ns) - min(at_ns) AS BIGINT) AS span_ns, CAST(coalesce(sum(ns) FILTER (k), 0) AS BIGINT) AS compute_ns,
    CAST(coalesce(sum(ns) FILTER (c), 0) AS BIGINT) AS communication_ns, CAST(coalesce(sum(ns) FILTER (m), 0) AS BIGINT) AS copy_ns,
    CAST(coalesce(sum(ns) FILTER (k AND c), 0) AS BIGINT) AS overlap_ns, CAST(coalesce(sum(ns) FILTER (c AND NOT k), 0) AS BIGINT) AS exposed_communication_ns,
    CAST(coalesce(sum(ns) FILTER (m AND NOT k AND NOT c), 0) AS BIGINT) AS exposed_copy_ns,
    CAST(coalesce(sum(ns) FILTER (o AND NOT k AND NOT c AND NOT m), 0) AS BIGINT) AS exposed_other_ns,
    CAST(coalesce(sum(ns) FILTER (NOT k AND NOT c AND NOT m AND NOT o), 0) AS BIGINT) AS idle_ns, any_value(n.num) AS num_activities
FROM piece p JOIN (SELECT incarnation, rank, device, count(*) AS num FROM activity GROUP BY ALL) n
    ON n.incarnation = p.incarnation AND n.rank IS NOT DISTINCT FROM p.rank AND n.device = p.device
GROUP BY p.incarnation, p.rank, p.device ORDER BY p.incarnation, p.rank, p.device;

-- name: device_merge
-- The activities of a device are those of one process.
SELECT * FROM partial_time_device ORDER BY incarnation, rank, device;

-- name: names
-- What counted as what: the time of each name, summed over its activities (which may overlap), longest first in each class.
SELECT kernel_class, name, CAST(count(*) AS BIGINT) AS num, CAST(sum(end_ns - start_ns) AS BIGINT) AS total_ns FROM kernel
WHERE category <> 'cpu_op' AND end_ns >= start_ns GROUP BY kernel_class, name ORDER BY total_ns DESC, name, kernel_class;

-- name: names_merge
SELECT kernel_class, name, CAST(sum(num) AS BIGINT) AS num, CAST(sum(total_ns) AS BIGINT) AS total_ns
FROM partial_time_names GROUP BY kernel_class, name ORDER BY total_ns DESC, name, kernel_class;

-- name: operators
SELECT count(*) FROM kernel WHERE category = 'cpu_op';

-- name: is_live
-- A run that hooks recorded, not an import: hooks leave rows that are not imported.
SELECT EXISTS (FROM capture) OR EXISTS (FROM collective WHERE tier <> 'imported') OR NOT EXISTS (FROM kernel);

-- name: live
-- Live runs by what the host saw, inside the counted steps. Pieces as above; classes: in a step, in work (forward, backward, optimizer), in an operation between issue and completion, in a wait for one, in a stall of the device's stream, in an operation on the device.
WITH work AS (
    SELECT p.proc, p.incarnation, p.rank, 'work' AS kind, p.start_ns, p.end_ns FROM span p
    WHERE p.kind IN ('forward', 'backward', 'optimizer') AND p.end_ns >= p.start_ns
), activity AS (
    SELECT proc, incarnation, rank, 'step' AS kind, start_ns, end_ns FROM counted_step
    UNION ALL FROM work
    UNION ALL SELECT proc, incarnation, rank, 'operation', issued_ns, completed_ns FROM collective WHERE completed_ns >= issued_ns
    UNION ALL SELECT proc, incarnation, rank, 'wait', wait_begin_ns, wait_end_ns FROM collective WHERE wait_end_ns >= wait_begin_ns
    UNION ALL SELECT proc, incarnation, rank, 'stall', wait_device_start_ns, wait_device_end_ns FROM collective WHERE wait_device_end_ns >= wait_device_start_ns
    UNION ALL SELECT proc, incarnation, rank, 'device', device_start_ns, device_end_ns FROM collective WHERE device_end_ns >= device_start_ns
), edge AS (
    SELECT incarnation, rank, proc, at_ns, sum(CASE WHEN kind = 'step' THEN sign ELSE 0 END) AS step, sum(CASE WHEN kind = 'work' THEN sign ELSE 0 END) AS work,
        sum(CASE WHEN kind = 'operation' THEN sign ELSE 0 END) AS operation, sum(CASE WHEN kind = 'wait' THEN sign ELSE 0 END) AS wait,
        sum(CASE WHEN kind = 'stall' THEN sign ELSE 0 END) AS stall, sum(CASE WHEN kind = 'device' THEN sign ELSE 0 END) AS device
    FROM (SELECT incarnation, rank, proc, kind, unnest([start_ns, end_ns]) AS at_ns, unnest([1, -1]) AS sign FROM activity)
    GROUP BY incarnation, rank, proc, at_ns
), piece AS (
    SELECT incarnation, rank, proc, lead(at_ns) OVER following - at_ns AS ns, sum(step) OVER following > 0 AS s, sum(work) OVER following > 0 AS k,
        sum(operation) OVER following > 0 AS c, sum(wait) OVER following > 0 AS w, sum(stall) OVER following > 0 AS x, sum(device) OVER following > 0 AS d
    FROM edge WINDOW following AS (PARTITION BY incarnation, rank, proc ORDER BY at_ns)
)
SELECT p.incarnation, p.rank, CAST(sum(ns) FILTER (s) AS BIGINT) AS span_ns, CAST(coalesce(sum(ns) FILTER (s AND k AND NOT w), 0) AS BIGINT) AS compute_ns,
    CAST(coalesce(sum(ns) FILTER (s AND c), 0) AS BIGINT) AS communication_ns, CAST(coalesce(sum(ns) FILTER (s AND w), 0) AS BIGINT) AS wait_ns,
    CAST(coalesce(sum(ns) FILTER (s AND c AND k AND NOT w), 0) AS BIGINT) AS overlap_ns,
    CAST(coalesce(sum(ns) FILTER (s AND NOT k AND NOT w), 0) AS BIGINT) AS other_ns,
    CAST(sum(ns) FILTER (s AND x) AS BIGINT) AS stall_ns, CAST(sum(ns) FILTER (s AND d) AS BIGINT) AS device_ns,
    max(v.is_device) AS is_device, max(v.num_work) AS num_work, max(v.num_operations) AS num_operations, max(v.num_steps) AS num_steps,
    max(v.num_inside) AS num_inside
FROM piece p JOIN (
    SELECT s.proc, s.incarnation, count(*) AS num_steps, coalesce(any_value(w.num_work), 0) AS num_work, coalesce(any_value(c.num_operations), 0) AS num_operations,
        coalesce(any_value(c.is_device), false) AS is_device, coalesce(any_value(c.num_inside), 0) AS num_inside
    FROM counted_step s
    LEFT JOIN (SELECT proc, incarnation, count(*) AS num_work FROM work GROUP BY ALL) w USING (proc, incarnation)
    LEFT JOIN (SELECT c.proc, c.incarnation, count(*) AS num_operations, count(*) FILTER (WHERE c.phase = 'backward' AND c.wait_begin_ns IS NULL) AS num_inside,
            bool_or(c.timing_source = 'device_event' OR g.backend LIKE '%nccl%' OR g.backend LIKE '%xccl%') AS is_device
        FROM collective c LEFT JOIN (SELECT group_id, incarnation, any_value(backend) AS backend FROM process_group GROUP BY ALL) g USING (group_id, incarnation)
        GROUP BY c.proc, c.incarnation) c USING (proc, incarnation)
    GROUP BY s.proc, s.incarnation
) v USING (proc, incarnation)
GROUP BY p.incarnation, p.rank ORDER BY p.incarnation, p.rank;

-- name: live_partial
SELECT * FROM part_live;

-- name: live_merge
WITH v AS (
    SELECT p.proc, p.incarnation, coalesce(w.num_work, 0) AS num_work, coalesce(c.num_operations, 0) AS num_operations, coalesce(c.is_device, false) AS is_device,
        coalesce(c.num_inside, 0) AS num_inside
    FROM partial_time_live p
    LEFT JOIN (SELECT proc, incarnation, sum(num_closed) AS num_work FROM partial_profile_spans WHERE kind IN ('forward', 'backward', 'optimizer') GROUP BY ALL) w USING (proc, incarnation)
    LEFT JOIN (SELECT c.proc, c.incarnation, sum(c.num_operations) AS num_operations, sum(c.num_inside_backward) AS num_inside,
            bool_or(c.num_device_event > 0 OR coalesce(g.backend LIKE '%nccl%' OR g.backend LIKE '%xccl%', false)) AS is_device
        FROM partial_profile_collectives c LEFT JOIN (SELECT group_id, incarnation, any_value(backend) AS backend FROM process_group GROUP BY ALL) g USING (group_id, incarnation)
        GROUP BY c.proc, c.incarnation) c USING (proc, incarnation)
)
SELECT p.incarnation, p.rank, CAST(sum(span_ns) AS BIGINT) AS span_ns, CAST(sum(compute_ns) AS BIGINT) AS compute_ns,
    CAST(sum(communication_ns) AS BIGINT) AS communication_ns, CAST(sum(wait_ns) AS BIGINT) AS wait_ns, CAST(sum(overlap_ns) AS BIGINT) AS overlap_ns,
    CAST(sum(other_ns) AS BIGINT) AS other_ns, CAST(sum(stall_ns) AS BIGINT) AS stall_ns, CAST(sum(device_ns) AS BIGINT) AS device_ns,
    max(v.is_device) AS is_device, CAST(max(v.num_work) AS BIGINT) AS num_work, CAST(max(v.num_operations) AS BIGINT) AS num_operations, max(p.num_steps) AS num_steps,
    CAST(max(v.num_inside) AS BIGINT) AS num_inside
FROM partial_time_live p JOIN v USING (proc, incarnation)
GROUP BY p.incarnation, p.rank ORDER BY p.incarnation, p.rank;
