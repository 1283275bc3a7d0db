-- name: collectives
-- The operations of each process, by group, kind and mechanism: what counts, sums and extremes can tell.
SELECT incarnation, proc, rank, group_id, op, tier, CAST(count(*) AS BIGINT) AS num_operations, CAST(sum(bytes_in) AS DECIMAL(38, 0)) AS bytes_in,
    CAST(count(bytes_in) AS BIGINT) AS num_with_bytes, min(bytes_in) AS least_bytes, max(bytes_in) AS most_bytes,
    CAST(count(*) FILTER (WHERE state = 'issued' AND timing_source IS NULL AND completed_ns IS NULL) AS BIGINT) AS num_unfinished,
    CAST(count(*) FILTER (WHERE state = 'failed') AS BIGINT) AS num_failed,
    CAST(count(*) FILTER (WHERE timing_source = 'wait') AS BIGINT) AS num_wait,
    CAST(count(*) FILTER (WHERE timing_source = 'poll') AS BIGINT) AS num_poll,
    CAST(count(*) FILTER (WHERE timing_source NOT IN ('wait', 'poll', 'none')) AS BIGINT) AS num_device,
    CAST(count(*) FILTER (WHERE timing_source = 'device_event') AS BIGINT) AS num_device_event,
    CAST(count(*) FILTER (WHERE phase = 'backward' AND wait_begin_ns IS NULL) AS BIGINT) AS num_inside_backward,
    CAST(count(*) FILTER (WHERE seq IS NOT NULL AND tier IS DISTINCT FROM 'imported') AS BIGINT) AS num_numbered,
    max(completed_ns - issued_ns) AS longest_ns, max(wait_end_ns - wait_begin_ns) AS longest_wait_ns,
    CAST(count(*) FILTER (WHERE stage IS NOT NULL AND role IS NOT NULL) AS BIGINT) AS num_staged,
    CAST(count(*) FILTER (WHERE src IS NULL AND dst IS NULL) AS BIGINT) AS num_collectives, max(seq) FILTER (WHERE src IS NULL AND dst IS NULL) AS last_seq,
    max(seq) FILTER (WHERE completed_ns IS NOT NULL AND src IS NULL AND dst IS NULL) AS last_completed_seq,
    CAST(count(record) AS BIGINT) AS num_records, max(record) AS last_record,
    min(issued_ns) FILTER (WHERE record IS NOT NULL) AS first_recorded_ns, max(issued_ns) FILTER (WHERE record IS NOT NULL) AS last_recorded_ns,
    min(issued_ns) AS first_ns, max(coalesce(completed_ns, issued_ns)) AS last_ns, max(greatest(issued_ns, completed_ns)) AS last_moment_ns
FROM collective GROUP BY incarnation, proc, rank, group_id, op, tier;

-- name: collectives_partial
SELECT * FROM part_profile;

-- name: spans
-- The spans of each process, by kind.
SELECT incarnation, proc, kind, CAST(count(*) FILTER (WHERE end_ns >= start_ns) AS BIGINT) AS num_closed,
    CAST(count(record) AS BIGINT) AS num_records, max(record) AS last_record,
    min(start_ns) FILTER (WHERE record IS NOT NULL) AS first_recorded_ns, max(start_ns) FILTER (WHERE record IS NOT NULL) AS last_recorded_ns,
    min(start_ns) AS first_ns, max(coalesce(end_ns, start_ns)) AS last_ns
FROM span GROUP BY incarnation, proc, kind;

-- name: spans_partial
SELECT * FROM part_spans;

-- name: steps
-- The counted steps of each process.
SELECT incarnation, proc, min(rank) AS rank, CAST(sum(duration_ns) AS BIGINT) AS step_ns, CAST(count(*) AS BIGINT) AS num_steps
FROM counted_step GROUP BY incarnation, proc;

-- name: steps_partial
SELECT * FROM part_steps;
