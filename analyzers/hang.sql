-- name: progress
-- How far each rank came in each group, in the last incarnation: the highest sequence number that it issued; collectives only.
SELECT group_id, rank, max(seq) AS high FROM collective
WHERE src IS NULL AND dst IS NULL AND rank IS NOT NULL AND incarnation = (SELECT max(incarnation) FROM collective)
GROUP BY group_id, rank ORDER BY group_id, rank;

-- name: progress_merge
SELECT group_id, rank, max(last_seq) AS high FROM partial_profile_collectives
WHERE num_collectives > 0 AND rank IS NOT NULL AND incarnation = (SELECT max(incarnation) FROM partial_profile_collectives)
GROUP BY group_id, rank ORDER BY group_id, rank;

-- name: unfinished
-- Operations that nobody saw end, of processes that did not end by themselves, and those that failed.
-- An operation that could not be watched (timing_source none) is none of them, nor one behind which later ones of its group ended.
SELECT c.group_id, c.rank, c.seq, c.op, c.src, c.dst, c.tag, c.issued_ns, p.boot_id, p.exit_kind, c.state = 'failed' AS has_failed,
    c.completed_ns
FROM collective c LEFT JOIN process p ON p.proc = c.proc AND p.incarnation = c.incarnation
WHERE (c.state = 'failed' OR c.state = 'issued' AND c.timing_source IS NULL AND c.completed_ns IS NULL AND coalesce(p.exit_kind, '') <> 'clean')
    AND c.incarnation = (SELECT max(incarnation) FROM collective) AND c.rank IS NOT NULL
    AND NOT EXISTS (FROM collective d WHERE d.proc = c.proc AND d.group_id = c.group_id AND d.seq > c.seq AND d.state = 'completed'
        AND d.src IS NOT DISTINCT FROM c.src AND d.dst IS NOT DISTINCT FROM c.dst AND d.tag IS NOT DISTINCT FROM c.tag)
ORDER BY c.issued_ns, c.rank, c.group_id, c.seq, c.op, c.src, c.dst, c.tag;

-- name: unfinished_partial
-- The same, whatever became of the process.
SELECT c.incarnation, c.proc, c.group_id, c.rank, c.seq, c.op, c.src, c.dst, c.tag, c.issued_ns, c.state = 'failed' AS has_failed, c.completed_ns
FROM part_open c
WHERE (c.state = 'failed' OR c.state = 'issued' AND c.timing_source IS NULL AND c.completed_ns IS NULL) AND c.rank IS NOT NULL
    AND NOT EXISTS (FROM part_open d WHERE d.proc = c.proc AND d.group_id = c.group_id AND d.seq > c.seq AND d.state = 'completed'
        AND d.src IS NOT DISTINCT FROM c.src AND d.dst IS NOT DISTINCT FROM c.dst AND d.tag IS NOT DISTINCT FROM c.tag);

-- name: unfinished_merge
SELECT c.group_id, c.rank, c.seq, c.op, c.src, c.dst, c.tag, c.issued_ns, p.boot_id, p.exit_kind, c.has_failed, c.completed_ns
FROM partial_hang_unfinished c LEFT JOIN process p ON p.proc = c.proc AND p.incarnation = c.incarnation
WHERE (c.has_failed OR coalesce(p.exit_kind, '') <> 'clean') AND c.incarnation = (SELECT max(incarnation) FROM partial_profile_collectives)
ORDER BY c.issued_ns, c.rank, c.group_id, c.seq, c.op, c.src, c.dst, c.tag;

-- name: calls
-- What each rank said of the operations that somebody has not finished, or that failed, for comparison.
SELECT c.group_id, c.seq, c.rank, c.op, c.dtype, c.bytes_in, c.bytes_out, c.root FROM collective c
WHERE c.op IS NOT NULL AND c.src IS NULL AND c.dst IS NULL AND c.incarnation = (SELECT max(incarnation) FROM collective)
    AND EXISTS (FROM collective d WHERE d.group_id = c.group_id AND d.seq = c.seq AND d.incarnation = c.incarnation
        AND (d.state = 'failed' OR d.state = 'issued' AND d.timing_source IS NULL AND d.completed_ns IS NULL))
ORDER BY ALL;

-- name: open
-- The operations that somebody has not finished, or that failed.
SELECT DISTINCT incarnation, group_id, seq, src, dst, tag FROM part_open
WHERE state = 'failed' OR state = 'issued' AND timing_source IS NULL AND completed_ns IS NULL;

-- name: calls_partial
SELECT c.incarnation, c.group_id, c.seq, c.rank, c.op, c.dtype, c.bytes_in, c.bytes_out, c.root FROM collective c
SEMI JOIN open_operation d ON d.group_id = c.group_id AND d.seq = c.seq AND d.incarnation = c.incarnation
WHERE c.op IS NOT NULL AND c.src IS NULL AND c.dst IS NULL;

-- name: calls_merge
SELECT group_id, seq, rank, op, dtype, bytes_in, bytes_out, root FROM partial_hang_calls
WHERE incarnation = (SELECT max(incarnation) FROM partial_profile_collectives) ORDER BY ALL;

-- name: sends
-- The sends that were issued, by the pair of ranks, of transfers that somebody has not finished.
SELECT DISTINCT c.group_id, c.src, c.dst, c.tag, c.seq FROM collective c
WHERE c.op = 'send' AND c.rank = c.src AND c.incarnation = (SELECT max(incarnation) FROM collective)
    AND EXISTS (FROM collective d WHERE d.group_id = c.group_id AND d.seq = c.seq AND d.incarnation = c.incarnation
        AND d.src = c.src AND d.dst = c.dst AND d.tag IS NOT DISTINCT FROM c.tag
        AND (d.state = 'failed' OR d.state = 'issued' AND d.timing_source IS NULL AND d.completed_ns IS NULL))
ORDER BY ALL;

-- name: sends_partial
SELECT c.incarnation, c.group_id, c.src, c.dst, c.tag, c.seq FROM collective c
SEMI JOIN open_operation d ON d.group_id = c.group_id AND d.seq = c.seq AND d.incarnation = c.incarnation
    AND d.src = c.src AND d.dst = c.dst AND d.tag IS NOT DISTINCT FROM c.tag
WHERE c.op = 'send' AND c.rank = c.src;

-- name: sends_merge
SELECT DISTINCT group_id, src, dst, tag, seq FROM partial_hang_sends
WHERE incarnation = (SELECT max(incarnation) FROM partial_profile_collectives) ORDER BY ALL;

-- name: processes
-- The processes of the last incarnation and whether they left any operation.
SELECT p.rank, min(p.exit_kind) AS exit_kind, CAST(count(c.record) FILTER (WHERE c.op IS NOT NULL) AS BIGINT) AS num_operations,
    bool_or(c.tier = 'imported') AS is_imported
FROM process p LEFT JOIN collective c ON c.proc = p.proc AND c.incarnation = p.incarnation
WHERE p.rank IS NOT NULL AND p.incarnation = (SELECT max(incarnation) FROM process) GROUP BY p.rank ORDER BY p.rank;

-- name: processes_merge
SELECT p.rank, min(p.exit_kind) AS exit_kind, CAST(coalesce(sum(c.num_records) FILTER (WHERE c.op IS NOT NULL), 0) AS BIGINT) AS num_operations,
    bool_or(c.tier = 'imported') AS is_imported
FROM process p LEFT JOIN partial_profile_collectives c ON c.proc = p.proc AND c.incarnation = p.incarnation
WHERE p.rank IS NOT NULL AND p.incarnation = (SELECT max(incarnation) FROM process) GROUP BY p.rank ORDER BY p.rank;

-- name: ends
-- How these ranks ended, and the last moment at which their processes are known to have lived, by their hosts' clocks.
SELECT p.rank, any_value(p.boot_id), min(p.exit_kind), min(p.exit_error), greatest(max(p.ended_ns), max(s.time_ns))
FROM process p LEFT JOIN process_sample s ON s.proc = p.proc
WHERE p.rank IN ({ranks}) AND p.incarnation = (SELECT max(incarnation) FROM process) GROUP BY p.rank ORDER BY p.rank;

-- name: last_seen
-- The last moment of each host of which the run tells anything, by its clock.
SELECT boot_id, max(time_ns) FROM (
    SELECT p.boot_id, greatest(c.issued_ns, c.completed_ns) AS time_ns FROM collective c JOIN process p ON p.proc = c.proc AND p.incarnation = c.incarnation
    UNION ALL SELECT p.boot_id, s.end_ns FROM step s JOIN process p ON p.proc = s.proc AND p.incarnation = s.incarnation
    UNION ALL SELECT p.boot_id, k.monotonic_ns FROM clock k JOIN process p ON p.proc = k.proc
    UNION ALL SELECT n.boot_id, h.time_ns FROM host_sample h JOIN node n ON n.node = h.node)
WHERE boot_id IS NOT NULL GROUP BY boot_id ORDER BY boot_id;

-- name: last_seen_merge
SELECT boot_id, max(time_ns) FROM (
    SELECT p.boot_id, c.last_moment_ns AS time_ns FROM partial_profile_collectives c JOIN process p ON p.proc = c.proc AND p.incarnation = c.incarnation
    UNION ALL SELECT p.boot_id, s.end_ns FROM step s JOIN process p ON p.proc = s.proc AND p.incarnation = s.incarnation
    UNION ALL SELECT p.boot_id, k.monotonic_ns FROM clock k JOIN process p ON p.proc = k.proc
    UNION ALL SELECT n.boot_id, h.time_ns FROM host_sample h JOIN node n ON n.node = h.node)
WHERE boot_id IS NOT NULL GROUP BY boot_id ORDER BY boot_id;

-- name: world
SELECT max(world_size) FROM run;
