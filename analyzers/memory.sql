-- name: ranks
-- Memory of each rank at its step ends: what torch's allocator held, and the process.
SELECT rank, CAST(count(*) AS BIGINT) AS num_readings, CAST(count(allocated_bytes) AS BIGINT) AS num_allocator,
    arg_max(allocated_bytes, time_ns) AS last_allocated, max(allocated_bytes) AS most_allocated,
    arg_max(reserved_bytes, time_ns) AS last_reserved, max(peak_allocated_bytes) AS peak_allocated, max(peak_reserved_bytes) AS peak_reserved,
    CAST(sum(inactive_split_bytes) AS DOUBLE) / nullif(CAST(sum(reserved_bytes) AS DOUBLE), 0) AS fragmentation,
    arg_max(rss_bytes, time_ns) AS last_rss, max(rss_bytes) AS most_rss, CAST(count(rss_bytes) AS BIGINT) AS num_rss,
    max(num_alloc_retries) AS num_retries, max(num_ooms) AS num_ooms, arg_max(device_uuid, time_ns) AS device_uuid
FROM memory GROUP BY rank ORDER BY rank;

-- name: series
-- At most {points} readings per rank, evenly spread over the counted steps of its last incarnation.
WITH readings AS (
    SELECT m.rank, m.step, m.allocated_bytes, m.rss_bytes, row_number() OVER (PARTITION BY m.rank ORDER BY m.step, m.time_ns, m.record) AS n,
        count(*) OVER (PARTITION BY m.rank) AS num_readings
    FROM memory m SEMI JOIN counted_step s ON s.proc = m.proc AND s.incarnation = m.incarnation AND s.step = m.step
    WHERE m.incarnation = (SELECT max(incarnation) FROM memory)
)
SELECT rank, step, allocated_bytes, rss_bytes FROM readings
WHERE (n - 1) % greatest(1, CAST(ceil(num_readings / {points}) AS BIGINT)) = 0 ORDER BY rank, step, n;

-- name: capacity
-- Of each device: its memory, and how much of it was in use at the last reading.
SELECT d.device_uuid, max(d.memory_bytes) AS memory_bytes, arg_max(s.memory_used_bytes, s.time_ns) AS used_bytes
FROM device d LEFT JOIN device_sample s USING (device_uuid) GROUP BY d.device_uuid ORDER BY d.device_uuid;
