-- name: counted_step
-- Steps that count, by process: ended, not left out by the job (warm-up, checkpoint, eval), and not the first one.
CREATE VIEW counted_step AS
SELECT proc, incarnation, rank, step, start_ns, end_ns, end_ns - start_ns AS duration_ns FROM step
WHERE end_ns >= start_ns AND left_out IS NULL AND step > 0;

-- name: arrival
-- Arrival of each rank at each operation that has a number. Of a large run it is costly: `matched_part.py` computes the same, part by part.
-- Device times where there are both, else the host's. Queued behind its predecessor in the group it has not been late: it arrives when that
-- completed, which cannot be after its own end.
CREATE VIEW arrival AS
WITH stamped AS (
    SELECT incarnation, group_id, op, seq, proc, record, device_start_ns IS NOT NULL AND device_end_ns IS NOT NULL AS is_device,
        CASE WHEN is_device THEN device_start_ns ELSE issued_ns END AS begun_ns, CASE WHEN is_device THEN device_end_ns ELSE completed_ns END AS completed_ns
    FROM collective WHERE op NOT IN ('send', 'recv') AND seq IS NOT NULL AND group_id IS NOT NULL)
SELECT c.incarnation, c.group_id, c.op, c.seq, c.proc, b.boot_id, c.is_device, c.completed_ns,
    greatest(c.begun_ns, least(coalesce(lag(c.completed_ns) OVER (PARTITION BY c.proc, c.incarnation, c.group_id ORDER BY c.seq, c.record), c.begun_ns), c.completed_ns)) AS arrival_ns
FROM stamped c LEFT JOIN (SELECT proc, min(boot_id) AS boot_id FROM process GROUP BY proc) b USING (proc)
WHERE c.begun_ns IS NOT NULL;

-- name: matched_operation
-- Operations after which all members go on together, of groups whose members share one host clock and all left a completion, on the device or on
-- the host. Whose times contradict each other are left out: it seems to end before its last member came.
CREATE VIEW matched_operation AS
SELECT a.incarnation, a.group_id, a.op, a.seq, max(a.arrival_ns) AS last_ns, min(a.arrival_ns) AS first_ns,
    quantile_disc(a.completed_ns, 0.5) AS completed_ns
FROM arrival a JOIN (SELECT group_id, max(size) AS size FROM process_group GROUP BY group_id) m USING (group_id)
WHERE a.op IN ('all_reduce', 'all_gather', 'all_gather_into_tensor', 'reduce_scatter', 'reduce_scatter_tensor', 'all_to_all',
    'all_to_all_single', 'barrier', 'all_reduce_coalesced', 'all_gather_coalesced', 'all_gather_into_tensor_coalesced',
    'reduce_scatter_coalesced', 'reduce_scatter_tensor_coalesced')
GROUP BY a.incarnation, a.group_id, a.op, a.seq, m.size
HAVING count(DISTINCT a.proc) = m.size AND count(*) = m.size AND count(a.completed_ns) = m.size
    AND count(DISTINCT a.boot_id) = 1 AND count(a.boot_id) = m.size AND bool_and(a.is_device) = bool_or(a.is_device)
    AND quantile_disc(a.completed_ns, 0.5) >= max(a.arrival_ns);
