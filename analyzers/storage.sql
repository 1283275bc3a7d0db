-- name: mounts
-- What each mounted file system did between its first and last reading; latency is over all operations in between.
WITH readings AS (
    SELECT node, mount, kind, time_ns, latency_ns, reason, read_bytes - lag(read_bytes) OVER w AS read, write_bytes - lag(write_bytes) OVER w AS written,
        num_operations - lag(num_operations) OVER w AS operations
    FROM mount_sample WHERE mount IS NOT NULL WINDOW w AS (PARTITION BY node, mount ORDER BY time_ns)
)
SELECT node, mount, any_value(kind) AS kind, CAST(count(*) AS BIGINT) AS num_readings, CAST(sum(read) FILTER (read >= 0) AS BIGINT) AS read_bytes,
    CAST(sum(written) FILTER (written >= 0) AS BIGINT) AS write_bytes, CAST(sum(operations) FILTER (operations >= 0) AS BIGINT) AS num_operations,
    CAST(sum(CAST(latency_ns AS HUGEINT) * operations) FILTER (operations > 0) // sum(operations) FILTER (operations > 0 AND latency_ns IS NOT NULL) AS BIGINT) AS latency_ns,
    max(latency_ns) AS most_latency_ns, arg_max(json_extract_string(reason, '$.read_bytes'), time_ns) AS why,
    arg_max(json_extract_string(reason, '$.latency_ns'), time_ns) AS why_no_latency
FROM readings GROUP BY node, mount ORDER BY node, mount;

-- name: series
-- Bytes read and written a second by mount, in 40 equal parts of the sampled time.
WITH intervals AS (
    SELECT node, mount, time_ns, time_ns - lag(time_ns) OVER w AS gap_ns, read_bytes - lag(read_bytes) OVER w AS read, write_bytes - lag(write_bytes) OVER w AS written
    FROM mount_sample WHERE mount IS NOT NULL WINDOW w AS (PARTITION BY node, mount ORDER BY time_ns)
), bounds AS (SELECT min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM mount_sample)
SELECT node, mount, CAST((time_ns - first_ns) * 40 // (last_ns - first_ns + 1) AS BIGINT) AS part,
    CAST(sum(CAST(read + written AS HUGEINT)) * 1000000000 // sum(gap_ns) AS BIGINT) AS bytes_per_second
FROM intervals, bounds WHERE read >= 0 AND written >= 0 AND gap_ns > 0 GROUP BY ALL ORDER BY node, mount, part;
