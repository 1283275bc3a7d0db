-- name: declared
-- What the run declares of its model, its devices and their price.
SELECT flops_per_sample, flops_per_token, flops_source, peak_flops, price_per_device_hour, precision, activation_checkpointing
FROM run ORDER BY run_id LIMIT 1;

-- name: devices
-- The accelerators by name.
SELECT name, CAST(count(DISTINCT device_uuid) AS BIGINT) AS num_devices FROM device GROUP BY name ORDER BY name;

-- name: spans
-- First and last moment of the steps of each incarnation, as the process saw them whose steps took longest; its clock.
SELECT incarnation, arg_max(first_ns, (last_ns - first_ns, -proc)) AS first_ns, arg_max(last_ns, (last_ns - first_ns, -proc)) AS last_ns,
    arg_max(boot_id, (last_ns - first_ns, -proc)) AS boot_id
FROM (
    SELECT s.incarnation, s.proc, min(s.start_ns) AS first_ns, max(s.end_ns) AS last_ns, min(p.boot_id) AS boot_id
    FROM step s LEFT JOIN process p ON p.proc = s.proc AND p.incarnation = s.incarnation
    WHERE s.end_ns >= s.start_ns GROUP BY s.incarnation, s.proc
) GROUP BY incarnation ORDER BY incarnation;

-- name: useful
-- Steps that ended and taught the model something: not skipped, no evaluation, each number in the whole training once.
SELECT CAST(count(*) AS BIGINT) AS num_ended, CAST(count(*) FILTER (WHERE is_useful) AS BIGINT) AS num_useful,
    CAST(count(DISTINCT coalesce(global_step, incarnation * 1000000000000 + step)) FILTER (WHERE is_useful) AS BIGINT) AS num_different,
    count(DISTINCT incarnation) > 1 AND count(global_step) < count(*) AS is_unnumbered
FROM (
    SELECT incarnation, step, max(global_step) AS global_step,
        NOT coalesce(bool_or(is_skipped), false) AND NOT coalesce(bool_or(left_out = 'eval'), false) AS is_useful
    FROM step WHERE end_ns >= start_ns GROUP BY incarnation, step
);

-- name: metric
-- A scalar over time: mean over the ranks of each step, as whole numbers of 1e-9 where they differ, and when the last rank logged it.
SELECT incarnation, step, CASE WHEN min(value) = max(value) THEN min(value)
    ELSE CAST(sum(CAST(round(value * 1e9) AS HUGEINT)) AS DOUBLE) / 1e9 / count(*) END AS value, max(time_ns) AS time_ns
FROM metric WHERE name = $name AND isfinite(value) AND abs(value) < 1e24
GROUP BY incarnation, step ORDER BY incarnation, step;

-- name: logged
-- How often a scalar was logged, whatever its value.
SELECT CAST(count(*) AS BIGINT) AS num_logged FROM metric WHERE name = $name;

-- name: by_rank
-- Counted steps of each rank: their number, their time, and the samples that it told.
SELECT k.rank, min(p.node) AS node, CAST(count(*) AS BIGINT) AS num_steps, CAST(sum(k.duration_ns) AS BIGINT) AS step_ns,
    CAST(sum(s.samples) AS BIGINT) AS samples, CAST(count(s.samples) AS BIGINT) AS num_told
FROM counted_step k JOIN step s ON s.proc = k.proc AND s.incarnation = k.incarnation AND s.step = k.step
LEFT JOIN (SELECT proc, min(node) AS node FROM process GROUP BY proc) p ON p.proc = k.proc
GROUP BY k.rank ORDER BY k.rank;
