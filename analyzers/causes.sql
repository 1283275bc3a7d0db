-- name: late_operations
-- The operations at which a rank was late by its own work in the given steps, where the group's operation before is known.
SELECT s.incarnation, s.step, s.team, s.operation, CAST(s.lateness_ns - s.inherited_ns AS BIGINT) AS own_ns
FROM _late_share s JOIN _late_operation o ON o.operation = s.operation
WHERE s.rank = $rank AND s.is_level AND s.lateness_ns > s.inherited_ns AND o.floor_ns IS NOT NULL
    AND list_contains($keys, s.incarnation * 4294967296 + s.step)
ORDER BY s.incarnation, s.step, s.operation;

-- name: arrivals
-- From when to when each member was on the way to the given operations, and its process.
SELECT operation, rank, proc, start_ns, begin_ns FROM _late_arrival WHERE list_contains($operations, operation)
ORDER BY operation, rank, proc;

-- name: work
-- What these processes did in the given steps and the ones before, on the common clock.
SELECT c.proc, c.kind, c.name, c.start_ns - {moved} AS start_ns, c.end_ns - {moved} AS end_ns
FROM span c JOIN (SELECT proc, incarnation, min(boot_id) AS boot_id FROM process GROUP BY proc, incarnation) p
    ON p.proc = c.proc AND p.incarnation = c.incarnation {aligned}
WHERE list_contains($procs, c.proc) AND c.end_ns > c.start_ns
    AND (list_contains($keys, c.incarnation * 4294967296 + c.step) OR list_contains($keys, c.incarnation * 4294967296 + c.step + 1))
ORDER BY c.proc, c.start_ns, c.record;

-- name: saves
-- Checkpoints that held these processes up, on the common clock.
SELECT c.proc, c.start_ns - {moved} AS start_ns, coalesce(c.blocking_end_ns, c.end_ns) - {moved} AS end_ns
FROM checkpoint c JOIN (SELECT proc, incarnation, min(boot_id) AS boot_id FROM process GROUP BY proc, incarnation) p
    ON p.proc = c.proc AND p.incarnation = c.incarnation {aligned}
WHERE list_contains($procs, c.proc) AND coalesce(c.blocking_end_ns, c.end_ns) > c.start_ns ORDER BY c.proc, c.start_ns, c.record;

-- name: transfers
-- What of these processes' host-visible waits was waiting for the last arrival, and what transfer; all of it was waiting where a member is missing.
SELECT r.proc, r.wait_begin_ns, r.wait_end_ns, CASE WHEN r.left_ns IS NULL THEN l.last_ns ELSE r.wait_end_ns END AS last_ns
FROM _late_arrival r JOIN _late_last l ON l.operation = r.operation
WHERE list_contains($procs, r.proc) AND r.wait_end_ns > r.wait_begin_ns
    AND (list_contains($keys, r.incarnation * 4294967296 + r.step) OR list_contains($keys, r.incarnation * 4294967296 + r.step + 1))
ORDER BY r.proc, r.wait_begin_ns, r.wait_end_ns;

-- name: readings
-- Readings of these processes between two moments, on the common clock.
SELECT proc, time_ns, run_queue_wait_ns, num_major_faults FROM (
    SELECT c.proc, c.time_ns - {moved} AS time_ns, c.run_queue_wait_ns, c.num_major_faults
    FROM process_sample c JOIN (SELECT proc, min(boot_id) AS boot_id FROM process GROUP BY proc) p ON p.proc = c.proc {aligned}
    WHERE list_contains($procs, c.proc))
WHERE time_ns BETWEEN $first_ns AND $last_ns ORDER BY proc, time_ns;

-- name: throttled
-- Of each process's device: readings between two moments, and those in which something held its clocks down.
SELECT proc, CAST(count(*) AS BIGINT) AS num_readings, CAST(count(*) FILTER (is_held) AS BIGINT) AS num_throttled FROM (
    SELECT p.proc, c.time_ns - {moved} AS time_ns, list_has_any(string_split(c.throttle_reasons, ','), ['sw_power_cap', 'hw_slowdown',
        'sw_thermal_slowdown', 'hw_thermal_slowdown', 'hw_power_brake_slowdown']) AS is_held
    FROM device_sample c JOIN (SELECT proc, min(device_uuid) AS device_uuid, min(boot_id) AS boot_id FROM process GROUP BY proc) p
        ON p.device_uuid = c.device_uuid {aligned}
    WHERE list_contains($procs, p.proc) AND c.throttle_reasons IS NOT NULL)
WHERE time_ns BETWEEN $first_ns AND $last_ns GROUP BY proc ORDER BY proc;
