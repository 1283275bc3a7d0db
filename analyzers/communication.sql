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

-- name: operations_merge
SELECT group_id, op, CAST(sum(num_operations) AS BIGINT) AS num_operations, CAST(sum(bytes_in) AS DECIMAL(38, 0)) AS bytes_in,
    CAST(sum(num_with_bytes) AS BIGINT) AS num_with_bytes, min(least_bytes) AS least_bytes, max(most_bytes) AS most_bytes,
    CAST(count(DISTINCT rank) AS BIGINT) AS num_ranks, CAST(sum(num_unfinished) AS BIGINT) AS num_unfinished,
    CAST(sum(num_failed) AS BIGINT) AS num_failed, CAST(sum(num_wait) AS BIGINT) AS num_wait, CAST(sum(num_poll) AS BIGINT) AS num_poll,
    CAST(sum(num_device) AS BIGINT) AS num_device, CAST(sum(num_inside_backward) AS BIGINT) AS num_inside_backward
FROM partial_profile_collectives GROUP BY group_id, op ORDER BY group_id, op;

-- name: durations
-- Issue to completion on one rank's host, in logarithmic buckets.
SELECT group_id, op, log_bucket(completed_ns - issued_ns) AS bucket, CAST(count(*) AS BIGINT) AS num_operations
FROM collective WHERE completed_ns >= issued_ns GROUP BY ALL ORDER BY ALL;

-- name: durations_partial
SELECT * FROM part_durations;

-- name: durations_merge
SELECT group_id, op, bucket, CAST(sum(num_operations) AS BIGINT) AS num_operations FROM partial_communication_durations GROUP BY ALL ORDER BY ALL;

-- name: host_waits
-- Begin to end of the host's wait on one rank, in logarithmic buckets.
SELECT group_id, op, log_bucket(wait_end_ns - wait_begin_ns) AS bucket, CAST(count(*) AS BIGINT) AS num_operations
FROM collective WHERE wait_end_ns >= wait_begin_ns GROUP BY ALL ORDER BY ALL;

-- name: host_waits_partial
SELECT * FROM part_host_waits;

-- name: host_waits_merge
SELECT group_id, op, bucket, CAST(sum(num_operations) AS BIGINT) AS num_operations FROM partial_communication_host_waits GROUP BY ALL ORDER BY ALL;

-- name: maxima
-- The longest of both, exact.
SELECT group_id, op, max(completed_ns - issued_ns) AS longest_ns, max(wait_end_ns - wait_begin_ns) AS longest_wait_ns
FROM collective GROUP BY group_id, op ORDER BY group_id, op;

-- name: maxima_merge
SELECT group_id, op, max(longest_ns) AS longest_ns, max(longest_wait_ns) AS longest_wait_ns
FROM partial_profile_collectives GROUP BY group_id, op ORDER BY group_id, op;

-- name: wait_time
-- Host-visible waits of each rank, over all its processes, during its counted steps, each instant once (several threads may wait), and the time of
-- these steps.
WITH waits AS (
    SELECT c.proc, c.wait_begin_ns AS begin_ns, c.wait_end_ns AS end_ns,
        max(c.wait_end_ns) OVER (PARTITION BY c.proc ORDER BY c.wait_begin_ns, c.record ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM collective c SEMI JOIN counted_step s ON s.proc = c.proc AND s.incarnation = c.incarnation AND s.step = c.step
    WHERE c.wait_end_ns >= c.wait_begin_ns
),
waited AS (SELECT proc, count(*) AS num_waits, sum(greatest(0, end_ns - greatest(begin_ns, coalesce(before_ns, begin_ns)))) AS wait_ns FROM waits GROUP BY proc),
operations AS (SELECT proc, count(*) AS num_operations FROM collective GROUP BY proc),
stepped AS (SELECT proc, min(rank) AS rank, sum(duration_ns) AS step_ns, count(*) AS num_steps FROM counted_step GROUP BY proc)
SELECT s.rank, CAST(coalesce(sum(w.wait_ns), 0) AS BIGINT) AS wait_ns, CAST(sum(s.step_ns) AS BIGINT) AS step_ns, CAST(sum(s.num_steps) AS BIGINT) AS num_steps,
    CAST(coalesce(sum(w.num_waits), 0) AS BIGINT) AS num_waits, CAST(coalesce(sum(o.num_operations), 0) AS BIGINT) AS num_operations
FROM stepped s LEFT JOIN waited w USING (proc) LEFT JOIN operations o USING (proc) GROUP BY s.rank ORDER BY s.rank;

-- name: waits_partial
SELECT proc, num_waits, wait_ns FROM part_waits;

-- name: wait_time_merge
WITH waited AS (SELECT proc, sum(num_waits) AS num_waits, sum(wait_ns) AS wait_ns FROM partial_communication_waits GROUP BY proc),
operations AS (SELECT proc, sum(num_records) AS num_operations FROM partial_profile_collectives GROUP BY proc),
stepped AS (SELECT proc, min(rank) AS rank, sum(step_ns) AS step_ns, sum(num_steps) AS num_steps FROM partial_profile_steps GROUP BY proc)
SELECT s.rank, CAST(coalesce(sum(w.wait_ns), 0) AS BIGINT) AS wait_ns, CAST(sum(s.step_ns) AS BIGINT) AS step_ns, CAST(sum(s.num_steps) AS BIGINT) AS num_steps,
    CAST(coalesce(sum(w.num_waits), 0) AS BIGINT) AS num_waits, CAST(coalesce(sum(o.num_operations), 0) AS BIGINT) AS num_operations
FROM stepped s LEFT JOIN waited w USING (proc) LEFT JOIN operations o USING (proc) GROUP BY s.rank ORDER BY s.rank;

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
ORDER BY incarnation, min(issued_ns) FILTER (WHERE is_open), group_id, seq, op, src, dst LIMIT 10;

-- name: open_partial
-- Rows without a completion that could have had one.
SELECT incarnation, proc, rank, group_id, op, seq, src, dst, step, issued_ns FROM part_open
WHERE state = 'issued' AND timing_source IS NULL AND completed_ns IS NULL;

-- name: unfinished_merge
-- The same operations as unfinished, with the ranks that did not see them complete.
WITH last AS (
    SELECT incarnation, proc, group_id, max(last_completed_seq) AS seq FROM partial_profile_collectives GROUP BY ALL),
open AS (
    SELECT o.* FROM partial_communication_open o LEFT JOIN last l USING (incarnation, proc, group_id)
    WHERE o.src IS NOT NULL OR o.dst IS NOT NULL OR o.seq > coalesce(l.seq, -1)),
found AS (
    SELECT incarnation, group_id, op, seq, src, dst, list(rank ORDER BY rank) AS ranks, min(step) AS step, min(issued_ns) AS issued_ns
    FROM open GROUP BY incarnation, group_id, op, seq, src, dst ORDER BY incarnation, issued_ns, group_id, seq, op, src, dst LIMIT 10)
SELECT incarnation, group_id, op, seq, src, dst, ranks, step, issued_ns FROM found ORDER BY incarnation, issued_ns, group_id, seq, op, src, dst;

-- name: issuers
-- The same as unfinished, with all that issued them: {found} is unfinished_merge. Reads the collectives again, so only where there are any.
WITH found AS ({found})
SELECT f.group_id, f.op, f.seq, any_value(f.ranks) AS ranks, list(DISTINCT c.rank ORDER BY c.rank) AS issuers, any_value(f.step) AS step, f.src, f.dst
FROM found f JOIN collective c ON c.incarnation = f.incarnation AND c.seq IS NOT DISTINCT FROM f.seq AND c.group_id IS NOT DISTINCT FROM f.group_id
    AND c.op IS NOT DISTINCT FROM f.op AND c.src IS NOT DISTINCT FROM f.src AND c.dst IS NOT DISTINCT FROM f.dst
GROUP BY f.incarnation, f.group_id, f.op, f.seq, f.src, f.dst, f.issued_ns
ORDER BY f.incarnation, f.issued_ns, f.group_id, f.seq, f.op, f.src, f.dst;
