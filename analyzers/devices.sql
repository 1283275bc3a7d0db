-- name: devices
-- Each device's readings in brief; counters as the difference of the last and the first. Means are over whole millionths, so that they
-- do not depend on the number of threads.
SELECT s.device_uuid, s.node, CAST(count(*) AS BIGINT) AS num_readings, max(s.time_ns) - min(s.time_ns) AS seen_ns,
    CAST(sum(CAST(round(sm_utilisation_ratio * 1000000) AS BIGINT)) AS DOUBLE) / count(sm_utilisation_ratio) / 1000000 AS mean_utilisation,
    max(sm_utilisation_ratio) AS most_utilisation,
    max(memory_used_bytes) AS most_memory, CAST(sum(CAST(round(power_watts * 1000000) AS BIGINT)) AS DOUBLE) / count(power_watts) / 1000000 AS mean_power, max(power_watts) AS most_power,
    arg_max(energy_joules, s.time_ns) - arg_min(energy_joules, s.time_ns) AS energy, CAST(count(energy_joules) AS BIGINT) AS num_energy,
    CAST(sum(CAST(round(temperature_celsius * 1000000) AS BIGINT)) AS DOUBLE) / count(temperature_celsius) / 1000000 AS mean_temperature, max(temperature_celsius) AS most_temperature,
    min(sm_clock_hertz) AS least_clock, max(sm_clock_hertz) AS most_clock, CAST(count(throttle_reasons) AS BIGINT) AS num_throttle,
    max(pcie_rx_bytes) - min(pcie_rx_bytes) AS pcie_rx, max(pcie_tx_bytes) - min(pcie_tx_bytes) AS pcie_tx,
    max(nvlink_rx_bytes) - min(nvlink_rx_bytes) AS nvlink_rx, max(nvlink_tx_bytes) - min(nvlink_tx_bytes) AS nvlink_tx,
    max(ecc_uncorrected) - min(ecc_uncorrected) AS num_uncorrected, arg_max(last_xid, s.time_ns) AS last_xid,
    arg_max(CAST(reason AS VARCHAR), s.time_ns) AS last_reason, arg_max(power_watts IS NULL AND memory_used_bytes IS NULL, s.time_ns) AS is_silent
FROM device_sample s GROUP BY s.device_uuid, s.node ORDER BY s.node, s.device_uuid;

-- name: about
-- What is known of each device, and the ranks that work on it.
SELECT d.device_uuid, max(d.name) AS name, max(d.memory_bytes) AS memory_bytes, max(d.power_limit_watts) AS power_limit, max(d.mig) AS mig,
    max(d.pci_bus_id) AS pci_bus_id, list(DISTINCT p.rank ORDER BY p.rank) FILTER (p.rank IS NOT NULL) AS ranks
FROM device d LEFT JOIN process p ON p.device_uuid = d.device_uuid GROUP BY d.device_uuid ORDER BY d.device_uuid;

-- name: integrated
-- Energy of each device from its power: trapezoids between neighbouring readings, in joules.
WITH pairs AS (
    SELECT device_uuid, milliwatts, time_ns, lag(milliwatts) OVER w AS before_milliwatts, lag(time_ns) OVER w AS before_ns
    FROM (SELECT device_uuid, time_ns, CAST(round(power_watts * 1000) AS BIGINT) AS milliwatts FROM device_sample WHERE power_watts IS NOT NULL)
    WINDOW w AS (PARTITION BY device_uuid ORDER BY time_ns)
)
SELECT device_uuid, CAST(sum((milliwatts + before_milliwatts) * (time_ns - before_ns)) AS DOUBLE) / 2e12 AS joules
FROM pairs WHERE before_ns IS NOT NULL GROUP BY device_uuid ORDER BY device_uuid;

-- name: throttling
-- Readings of each device in which a reason held its clocks down.
SELECT device_uuid, reason, CAST(count(*) AS BIGINT) AS num_readings
FROM (SELECT device_uuid, unnest(string_split(throttle_reasons, ',')) AS reason FROM device_sample WHERE throttle_reasons <> '')
GROUP BY device_uuid, reason ORDER BY device_uuid, reason;

-- name: series
-- Means of each device's readings in 40 equal parts of the sampled time, in thousandths of a unit.
WITH bounds AS (SELECT min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM device_sample)
SELECT device_uuid, CAST((time_ns - first_ns) * 40 // (last_ns - first_ns + 1) AS BIGINT) AS part,
    CAST(sum(CAST(round(sm_utilisation_ratio * 1000) AS BIGINT)) // count(sm_utilisation_ratio) AS BIGINT) AS utilisation,
    CAST(sum(CAST(round(power_watts * 1000) AS BIGINT)) // count(power_watts) AS BIGINT) AS power,
    CAST(sum(CAST(round(temperature_celsius * 1000) AS BIGINT)) // count(temperature_celsius) AS BIGINT) AS temperature
FROM device_sample, bounds GROUP BY ALL ORDER BY device_uuid, part;

-- name: notes
-- What the samplers of devices said while they worked.
SELECT DISTINCT why FROM capture WHERE hook IN ('nvml', 'amd_smi') AND is_on AND why IS NOT NULL ORDER BY why;

-- name: steps
-- Steps that ended, by the rank that has most.
SELECT CAST(coalesce(max(num_steps), 0) AS BIGINT) FROM (SELECT count(*) AS num_steps FROM step WHERE end_ns IS NOT NULL GROUP BY rank);
