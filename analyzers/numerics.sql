-- name: told
-- How much is known of each metric that is watched: the loss and the gradient norm.
SELECT name, CAST(count(*) AS BIGINT) AS num_rows, CAST(count(DISTINCT (incarnation, step)) AS BIGINT) AS num_steps,
    name ILIKE '%loss%' AS is_loss
FROM metric WHERE (name ILIKE '%loss%' OR name ILIKE '%grad%norm%') AND name NOT ILIKE '%scale%' GROUP BY name ORDER BY name;

-- name: nonfinite
-- Steps in which a loss or gradient norm was not finite on any rank, by metric; how many of them the loss scaler skipped, which is its purpose.
WITH bad AS (
    SELECT name, incarnation, step, list_sort(list(DISTINCT rank)) AS ranks FROM metric
    WHERE (name ILIKE '%loss%' OR name ILIKE '%grad%norm%') AND name NOT ILIKE '%scale%' AND NOT isfinite(value) AND step IS NOT NULL
    GROUP BY name, incarnation, step
), skipped AS (SELECT DISTINCT incarnation, step FROM step WHERE is_skipped)
SELECT b.name, CAST(count(*) AS BIGINT) AS num_steps, CAST(count(s.step) AS BIGINT) AS num_skipped,
    min((b.incarnation, b.step)) AS first_step, arg_min(b.ranks, (b.incarnation, b.step)) AS first_ranks
FROM bad b LEFT JOIN skipped s ON s.incarnation = b.incarnation AND s.step = b.step GROUP BY b.name ORDER BY b.name;

-- name: spikes
-- Steps whose mean over the ranks lies more than {mads} MAD from the median of the last {window} steps, by metric; only finite values, at least {least} before.
WITH one AS (
    SELECT incarnation, proc, name, step, arg_max(value, record) AS value FROM metric
    WHERE (name ILIKE '%loss%' OR name ILIKE '%grad%norm%') AND name NOT ILIKE '%scale%' AND isfinite(value) AND step IS NOT NULL
    GROUP BY incarnation, proc, name, step
), series AS (
    SELECT incarnation, name, step, list_avg(list(value ORDER BY value)) AS value FROM one GROUP BY incarnation, name, step
), judged AS (
    SELECT incarnation, name, step, value, count(*) OVER before AS num_before, median(value) OVER before AS median, mad(value) OVER before AS mad
    FROM series WINDOW before AS (PARTITION BY incarnation, name ORDER BY step ROWS BETWEEN {window} PRECEDING AND 1 PRECEDING)
)
SELECT name, CAST(count(*) FILTER (WHERE num_before >= {least} AND mad > 0) AS BIGINT) AS num_judged,
    CAST(count(*) FILTER (WHERE is_spike) AS BIGINT) AS num_spikes, min((incarnation, step)) FILTER (WHERE is_spike) AS first_step,
    arg_max((incarnation, step), abs(value - median) / mad) FILTER (WHERE is_spike) AS worst_step,
    arg_max(value, abs(value - median) / mad) FILTER (WHERE is_spike) AS worst_value
FROM (SELECT *, num_before >= {least} AND mad > 0 AND abs(value - median) > {mads} * mad AS is_spike FROM judged) GROUP BY name ORDER BY name;

-- name: scales
-- Loss scales: how often one collapsed, which is to fall below 1, or to 1/{fall} of its largest value in the last {window} updates.
WITH told AS (
    SELECT incarnation, proc, name, step, record, value,
        value < 1 OR value * {fall} <= max(value) OVER (PARTITION BY incarnation, proc, name ORDER BY record ROWS BETWEEN {window} PRECEDING AND 1 PRECEDING) AS is_low
    FROM metric WHERE name ILIKE '%loss%scale%' AND step IS NOT NULL
), begun AS (
    SELECT *, is_low AND NOT coalesce(lag(is_low) OVER (PARTITION BY incarnation, proc, name ORDER BY record), false) AS is_begin FROM told
)
SELECT name, CAST(count(*) AS BIGINT) AS num_rows, CAST(count(DISTINCT (incarnation, step)) FILTER (WHERE is_begin) AS BIGINT) AS num_collapses,
    min((incarnation, step)) FILTER (WHERE is_begin) AS first_step, min(value) AS least, max(value) AS most
FROM begun GROUP BY name ORDER BY name;

-- name: drift
-- Values declared replicated, compared over the processes that told them: steps in which they differ, and by how much.
WITH told AS (
    SELECT incarnation, name, step, proc, value, row_number() OVER (PARTITION BY incarnation, proc, name, step ORDER BY record) AS ordinal
    FROM metric WHERE is_replicated AND step IS NOT NULL
), compared AS (
    SELECT incarnation, name, step, ordinal, min(value) AS low, max(value) AS high FROM told
    GROUP BY incarnation, name, step, ordinal HAVING count(DISTINCT proc) >= 2
)
SELECT name, CAST(count(DISTINCT (incarnation, step)) AS BIGINT) AS num_compared,
    CAST(count(DISTINCT (incarnation, step)) FILTER (WHERE low <> high) AS BIGINT) AS num_steps,
    min((incarnation, step)) FILTER (WHERE low <> high) AS first_step,
    max((high - low) / greatest(abs(high), abs(low))) FILTER (WHERE low <> high AND isfinite(low) AND isfinite(high)) AS most
FROM compared GROUP BY name ORDER BY name;

-- name: values_of_step
-- What each rank told of one metric in one step.
SELECT rank, list(value ORDER BY record) AS told FROM metric
WHERE is_replicated AND name = $name AND incarnation = $incarnation AND step = $step GROUP BY rank ORDER BY rank;

-- name: curve
-- A metric over the steps, as the mean over the ranks, in at most {columns} equal groups of steps.
WITH one AS (
    SELECT incarnation, proc, step, arg_max(value, record) AS value FROM metric
    WHERE name = $name AND isfinite(value) AND step IS NOT NULL GROUP BY incarnation, proc, step
), series AS (
    SELECT incarnation, step, list_avg(list(value ORDER BY value)) AS value FROM one GROUP BY incarnation, step
), numbered AS (
    SELECT row_number() OVER (ORDER BY incarnation, step) - 1 AS place, count(*) OVER () AS num_steps, incarnation, step, value FROM series
)
SELECT CAST(place * {columns} // greatest(num_steps, {columns}) AS BIGINT) AS column_number, arg_min(step, place) AS first_step,
    arg_max(step, place) AS last_step, list_avg(list(value ORDER BY value)) AS mean, min(value) AS low, max(value) AS high
FROM numbered GROUP BY 1 ORDER BY 1;
