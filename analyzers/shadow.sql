-- name: steps
-- Step time by ordinal: the mean over the ranks, which wait for each other. Shadow steps, and those that count.
SELECT incarnation, step, CAST(avg(end_ns - start_ns) AS DOUBLE) AS step_ns, bool_or(left_out = 'shadow') AS is_shadow
FROM step
WHERE end_ns > start_ns AND step IS NOT NULL AND (left_out IS NULL OR left_out = 'shadow')
GROUP BY incarnation, step ORDER BY incarnation, step;
