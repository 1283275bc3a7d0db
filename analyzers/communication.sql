-- name: operations
-- Every operation by group and kind, over all ranks.
SELECT group_id, op, CAST(count(*) AS BIGINT) AS num_operations, CAST(sum(bytes_in) AS DECIMAL(38, 0)) AS bytes_in,
    CAST(count(bytes_in) AS BIGINT) AS num_with_bytes, min(bytes_in) AS least_bytes, max(bytes_in) AS most_bytes,
    CAST(count(DISTINCT rank) AS BIGINT) AS num_ranks,
    CAST(count(*) FILTER (WHERE state = 'issued' AND timing_source IS NULL AND completed_ns IS NULL) AS BIGINT) AS num_unfinished,
    CAST(count(*) FILTER (WHERE state = 'failed') AS BIGINT) AS num_failed,
    CAST(count(*) FILTER (WHERE timing_source = 'wait') AS BIGINT) AS num_wait,
    CAST(count(*) FILTER (WHERE timing_source = 'poll') AS BIGINT) AS num_poll,
    CAST(count(*) FILTER (WHERE timing_source NOT IN ('wait', 'poll', 'none')) AS BIGINT) AS num_device,
    CAST(count(*) FILTER (WHERE phase = 'backward' AND wait_begin_ns IS NULL) AS BIGINT) AS num_inside_backward
FROM collective GROUP BY group_id, op ORDER BY group_id, op;

-- name: durations
-- Issue to completion on one rank's host, in logarithmic buckets.
SELECT group_id, op, log_bucket(completed_ns - issued_ns) AS bucket, CAST(count(*) AS BIGINT) AS num_operations
FROM collective WHERE completed_ns >= issued_ns GROUP BY ALL ORDER BY ALL;

-- name: host_waits
-- Begin to end of the host's wait on one rank, in logarithmic buckets.
SELECT group_id, op, log_bucket(wait_end_ns - wait_begin_ns) AS bucket, CAST(count(*) AS BIGINT) AS num_operations
FROM collective WHERE wait_end_ns >= wait_begin_ns GROUP BY ALL ORDER BY ALL;

-- name: maxima
-- The longest of both, exact.
SELECT group_id, op, max(completed_ns - issued_ns) AS longest_ns, max(wait_end_ns - wait_begin_ns) AS longest_wait_ns
FROM collective GROUP BY group_id, op ORDER BY group_id, op;

-- name: transfers
-- Completion (median over the members) minus last arrival, in logarithmic buckets.
SELECT group_id, op, log_bucket(greatest(0, completed_ns - last_ns)) AS bucket, CAST(count(*) AS BIGINT) AS num_operations
FROM matched_operation GROUP BY ALL ORDER BY ALL;

-- name: matched_maxima
-- The longest of both, exact.
SELECT group_id, op, max(greatest(0, completed_ns - last_ns)) AS longest_transfer_ns, max(last_ns - first_ns) AS longest_wait_ns
FROM matched_operation GROUP BY group_id, op ORDER BY group_id, op;

-- name: arrival_waits
-- Last arrival minus each member's arrival, in logarithmic buckets.
SELECT m.group_id, m.op, log_bucket(m.last_ns - a.arrival_ns) AS bucket, CAST(count(*) AS BIGINT) AS num_operations
FROM matched_operation m JOIN arrival a ON a.incarnation = m.incarnation AND a.group_id = m.group_id AND a.op = m.op AND a.seq = m.seq
GROUP BY ALL ORDER BY ALL;

-- name: wait_time
-- Host-visible waits of each rank during its counted steps, each instant once (several threads may wait), and the time of these steps.
WITH waits AS (
    SELECT c.proc, c.wait_begin_ns AS begin_ns, c.wait_end_ns AS end_ns,
        max(c.wait_end_ns) OVER (PARTITION BY c.proc ORDER BY c.wait_begin_ns, c.record ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM collective c SEMI JOIN counted_step s ON s.proc = c.proc AND s.incarnation = c.incarnation AND s.step = c.step
    WHERE c.wait_end_ns >= c.wait_begin_ns
),
waited AS (SELECT proc, count(*) AS num_waits, sum(greatest(0, end_ns - greatest(begin_ns, coalesce(before_ns, begin_ns)))) AS wait_ns FROM waits GROUP BY proc),
stepped AS (SELECT proc, min(rank) AS rank, sum(duration_ns) AS step_ns, count(*) AS num_steps FROM counted_step GROUP BY proc)
SELECT s.rank, CAST(coalesce(w.wait_ns, 0) AS BIGINT) AS wait_ns, CAST(s.step_ns AS BIGINT) AS step_ns, CAST(s.num_steps AS BIGINT) AS num_steps,
    CAST(coalesce(w.num_waits, 0) AS BIGINT) AS num_waits
FROM stepped s LEFT JOIN waited w USING (proc) ORDER BY s.rank, s.proc;

-- name: groups
-- The groups, members run-length coded.
SELECT group_id, max(backend) AS backend, max(mesh_dimension) AS mesh_dimension, max(description) AS description, max(size) AS size,
    any_value(member_starts ORDER BY incarnation) AS starts, any_value(member_strides ORDER BY incarnation) AS strides,
    any_value(member_counts ORDER BY incarnation) AS counts
FROM process_group GROUP BY group_id ORDER BY group_id;

-- name: unfinished
-- Operations that nobody saw complete although their completion could be learnt, and all ranks that issued them. Where a
-- process saw a later collective of the group complete, this one is over too: only the end of it was not recorded.
WITH last AS (
    SELECT incarnation, proc, group_id, max(seq) AS seq FROM collective
    WHERE completed_ns IS NOT NULL AND src IS NULL AND dst IS NULL GROUP BY ALL),
told AS (
    SELECT c.*, c.state = 'issued' AND c.timing_source IS NULL AND c.completed_ns IS NULL
        AND (c.src IS NOT NULL OR c.dst IS NOT NULL OR c.seq > coalesce(l.seq, -1)) AS is_open
    FROM collective c LEFT JOIN last l USING (incarnation, proc, group_id))
SELECT group_id, op, seq, list(rank ORDER BY rank) FILTER (WHERE is_open) AS ranks,
    list(DISTINCT rank ORDER BY rank) AS issuers, min(step) FILTER (WHERE is_open) AS step, src, dst
FROM told GROUP BY incarnation, group_id, op, seq, src, dst HAVING bool_or(is_open)
ORDER BY incarnation, min(issued_ns) FILTER (WHERE is_open), group_id, seq LIMIT 10;
