-- name: hosts
-- Each node's readings in brief: how busy its CPUs were, memory against its limit, and pressure. Means are over whole millionths, so
-- that they do not depend on the number of threads.
SELECT node, CAST(count(*) AS BIGINT) AS num_readings, CAST(sum(CAST(round(cpu_utilisation_ratio * 1000000) AS BIGINT)) AS DOUBLE) / count(cpu_utilisation_ratio) / 1000000 AS mean_cpu, max(cpu_utilisation_ratio) AS most_cpu,
    CAST(count(cpu_utilisation_ratio) AS BIGINT) AS num_cpu, arg_max(cpu_limit_cores, time_ns) AS cpu_limit,
    CAST(sum(CAST(round(iowait_ratio * 1000000) AS BIGINT)) AS DOUBLE) / count(iowait_ratio) / 1000000 AS mean_iowait, max(memory_used_bytes) AS most_memory, arg_max(memory_limit_bytes, time_ns) AS memory_limit,
    max(CAST(memory_used_bytes AS DOUBLE) / nullif(memory_limit_bytes, 0)) AS memory_share, max(swap_used_bytes) AS most_swap,
    CAST(sum(CAST(round(cpu_pressure_ratio * 1000000) AS BIGINT)) AS DOUBLE) / count(cpu_pressure_ratio) / 1000000 AS mean_cpu_pressure, max(cpu_pressure_ratio) AS most_cpu_pressure,
    CAST(sum(CAST(round(memory_pressure_ratio * 1000000) AS BIGINT)) AS DOUBLE) / count(memory_pressure_ratio) / 1000000 AS mean_memory_pressure, max(memory_pressure_ratio) AS most_memory_pressure,
    CAST(sum(CAST(round(io_pressure_ratio * 1000000) AS BIGINT)) AS DOUBLE) / count(io_pressure_ratio) / 1000000 AS mean_io_pressure, max(io_pressure_ratio) AS most_io_pressure,
    max(disk_read_bytes) - min(disk_read_bytes) AS disk_read, max(disk_write_bytes) - min(disk_write_bytes) AS disk_write,
    arg_max(json_extract_string(reason, '$.cpu_pressure_ratio'), time_ns) AS why_no_pressure,
    arg_max(json_extract_string(reason, '$.memory_used_bytes'), time_ns) AS why_no_memory
FROM host_sample GROUP BY node ORDER BY node;

-- name: series
-- Means of each node's readings in 40 equal parts of the sampled time, in thousandths.
WITH bounds AS (SELECT min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM host_sample)
SELECT node, CAST((time_ns - first_ns) * 40 // (last_ns - first_ns + 1) AS BIGINT) AS part,
    CAST(sum(CAST(round(cpu_utilisation_ratio * 1000) AS BIGINT)) // count(cpu_utilisation_ratio) AS BIGINT) AS cpu,
    CAST(sum(CAST(round(CAST(memory_used_bytes AS DOUBLE) / nullif(memory_limit_bytes, 0) * 1000) AS BIGINT))
        // count(CAST(memory_used_bytes AS DOUBLE) / nullif(memory_limit_bytes, 0)) AS BIGINT) AS memory,
    CAST(sum(CAST(round(io_pressure_ratio * 1000) AS BIGINT)) // count(io_pressure_ratio) AS BIGINT) AS io_pressure
FROM host_sample, bounds GROUP BY ALL ORDER BY node, part;

-- name: processes
-- What each rank's process got from the kernel between the first and the last reading inside its counted steps (all of its readings where there are none); a rank's processes after restarts are added up.
WITH steps AS (
    SELECT proc, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM counted_step GROUP BY proc
), readings AS (
    SELECT p.* FROM process_sample p LEFT JOIN steps s USING (proc) WHERE s.proc IS NULL OR p.time_ns BETWEEN s.start_ns AND s.end_ns
), ends AS (
    SELECT proc, any_value(rank) AS rank, arg_max(node, time_ns) AS node, max(time_ns) AS last_ns, CAST(count(*) AS BIGINT) AS num_readings, max(time_ns) - min(time_ns) AS seen_ns,
        max(run_queue_wait_ns) - min(run_queue_wait_ns) AS waited_ns, max(cpu_user_ns + cpu_system_ns) - min(cpu_user_ns + cpu_system_ns) AS cpu_ns,
        max(num_involuntary_switches) - min(num_involuntary_switches) AS involuntary, max(num_major_faults) - min(num_major_faults) AS faults,
        max(rss_bytes) AS rss_bytes, max(num_threads) AS num_threads, max(read_bytes) - min(read_bytes) AS read_bytes,
        max(write_bytes) - min(write_bytes) AS write_bytes, arg_max(json_extract_string(reason, '$.run_queue_wait_ns'), time_ns) AS why
    FROM readings GROUP BY proc
)
SELECT rank, CAST(sum(num_readings) AS BIGINT) AS num_readings, CAST(sum(seen_ns) AS BIGINT) AS seen_ns, CAST(sum(waited_ns) AS BIGINT) AS waited_ns,
    CAST(sum(cpu_ns) AS BIGINT) AS cpu_ns, CAST(sum(involuntary) AS BIGINT) AS involuntary, CAST(sum(faults) AS BIGINT) AS faults,
    max(rss_bytes) AS rss_bytes, max(num_threads) AS num_threads, CAST(sum(read_bytes) AS BIGINT) AS read_bytes,
    CAST(sum(write_bytes) AS BIGINT) AS write_bytes, min(why) AS why,
    arg_max(node, last_ns) AS node
FROM ends GROUP BY rank ORDER BY rank;

-- name: covered
-- How much of the time in which a node's ranks made steps its readings cover: the node that is covered least.
WITH readings AS (SELECT node, max(time_ns) - min(time_ns) AS read_ns FROM host_sample GROUP BY node),
    stepping AS (SELECT node, max(end_ns) - min(start_ns) AS stepped_ns FROM step GROUP BY node)
SELECT CAST(read_ns AS BIGINT), CAST(stepped_ns AS BIGINT) FROM readings JOIN stepping USING (node) WHERE stepped_ns > 0
ORDER BY read_ns / stepped_ns, node LIMIT 1;
