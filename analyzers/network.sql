-- name: nics
-- What each interface of each node counted between its first and last reading; a counter that fell (reset) counts from there on.
WITH readings AS (
    SELECT node, nic, kind, time_ns, is_up, speed_bytes_per_second, reason, rx_bytes, tx_bytes,
        rx_bytes - lag(rx_bytes) OVER w AS rx, tx_bytes - lag(tx_bytes) OVER w AS tx, time_ns - lag(time_ns) OVER w AS gap_ns,
        greatest(0, coalesce(rx_errors - lag(rx_errors) OVER w, 0)) + greatest(0, coalesce(tx_errors - lag(tx_errors) OVER w, 0)) AS errors,
        greatest(0, coalesce(rx_dropped - lag(rx_dropped) OVER w, 0)) + greatest(0, coalesce(tx_dropped - lag(tx_dropped) OVER w, 0)) AS drops,
        greatest(0, num_retransmits - lag(num_retransmits) OVER w) AS retransmits,
        greatest(0, num_congestion - lag(num_congestion) OVER w) AS congestions
    FROM nic_sample WHERE nic IS NOT NULL WINDOW w AS (PARTITION BY node, nic ORDER BY time_ns)
)
SELECT node, nic, any_value(kind) AS kind, CAST(count(*) AS BIGINT) AS num_readings,
    CAST(sum(rx) FILTER (rx >= 0) AS BIGINT) AS rx_bytes, CAST(sum(tx) FILTER (tx >= 0) AS BIGINT) AS tx_bytes,
    CAST(count(*) FILTER (rx < 0 OR tx < 0) AS BIGINT) AS num_resets, CAST(sum(errors) AS BIGINT) AS num_errors,
    CAST(sum(drops) AS BIGINT) AS num_drops, CAST(sum(retransmits) AS BIGINT) AS num_retransmits,
    CAST(sum(congestions) AS BIGINT) AS num_congestions, arg_max(is_up, time_ns) AS is_up,
    max(speed_bytes_per_second) AS speed, CAST(max(gap_ns) AS BIGINT) AS longest_gap_ns,
    arg_max(json_extract_string(reason, '$.rx_bytes'), time_ns) AS why
FROM readings GROUP BY node, nic ORDER BY node, nic;

-- name: steps
-- Bytes by interface and direction inside the counted steps that readings surround, each interval between readings shared out over the time it covers.
WITH bounds AS (
    SELECT p.node, s.incarnation, s.step, min(s.start_ns) AS start_ns, max(s.end_ns) AS end_ns
    FROM counted_step s JOIN (SELECT proc, any_value(node) AS node FROM process GROUP BY proc) p USING (proc)
    GROUP BY p.node, s.incarnation, s.step
), steps AS (
    SELECT node, incarnation, step, start_ns, least(end_ns,
        coalesce(lead(start_ns) OVER (PARTITION BY node, incarnation ORDER BY start_ns, step), end_ns)) AS end_ns FROM bounds
), intervals AS (
    SELECT node, nic, time_ns AS to_ns, lag(time_ns) OVER w AS from_ns, rx_bytes - lag(rx_bytes) OVER w AS rx, tx_bytes - lag(tx_bytes) OVER w AS tx
    FROM nic_sample WHERE nic IS NOT NULL WINDOW w AS (PARTITION BY node, nic ORDER BY time_ns)
), shared AS (
    SELECT s.node, i.nic, s.incarnation, s.step, s.end_ns - s.start_ns AS length_ns, i.rx, i.tx, i.to_ns - i.from_ns AS interval_ns,
        least(s.end_ns, i.to_ns) - greatest(s.start_ns, i.from_ns) AS inside_ns
    FROM steps s JOIN intervals i ON i.node = s.node AND i.from_ns < s.end_ns AND i.to_ns > s.start_ns
    WHERE s.end_ns > s.start_ns AND i.to_ns > i.from_ns AND i.rx >= 0 AND i.tx >= 0
), per_step AS (
    SELECT node, nic, incarnation, step, sum(CAST(rx AS HUGEINT) * inside_ns // interval_ns) AS rx,
        sum(CAST(tx AS HUGEINT) * inside_ns // interval_ns) AS tx
    FROM shared GROUP BY node, nic, incarnation, step HAVING sum(inside_ns) = any_value(length_ns)
)
SELECT node, nic, CAST(count(*) AS BIGINT) AS num_steps, CAST(sum(rx) // count(*) AS BIGINT) AS mean_rx, CAST(min(rx) AS BIGINT) AS least_rx,
    CAST(max(rx) AS BIGINT) AS most_rx,
    CAST(sum(tx) // count(*) AS BIGINT) AS mean_tx, CAST(min(tx) AS BIGINT) AS least_tx, CAST(max(tx) AS BIGINT) AS most_tx
FROM per_step GROUP BY node, nic ORDER BY node, nic;

-- name: series
-- Bytes a second by interface, in 40 equal parts of the sampled time.
WITH intervals AS (
    SELECT node, nic, time_ns, time_ns - lag(time_ns) OVER w AS gap_ns,
        rx_bytes - lag(rx_bytes) OVER w AS rx, tx_bytes - lag(tx_bytes) OVER w AS tx
    FROM nic_sample WHERE nic IS NOT NULL WINDOW w AS (PARTITION BY node, nic ORDER BY time_ns)
), bounds AS (SELECT min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM nic_sample)
SELECT node, nic, CAST((time_ns - first_ns) * 40 // (last_ns - first_ns + 1) AS BIGINT) AS part,
    CAST(sum(CAST(rx + tx AS HUGEINT)) * 1000000000 // sum(gap_ns) AS BIGINT) AS bytes_per_second
FROM intervals, bounds WHERE rx >= 0 AND tx >= 0 AND gap_ns > 0 GROUP BY ALL ORDER BY node, nic, part;

-- name: places
-- On how many nodes the run's ranks were.
SELECT CAST(count(DISTINCT node) AS BIGINT) FROM process WHERE rank IS NOT NULL;
