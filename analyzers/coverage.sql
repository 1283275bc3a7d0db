-- name: records
-- Ring rows that are there, by process: a record number is unique in its process over all tables.
SELECT proc, CAST(count(*) AS BIGINT) AS present, max(record) AS last_record, min(start_ns) AS first_ns, max(start_ns) AS last_ns
FROM (
    SELECT proc, record, issued_ns AS start_ns FROM collective WHERE record IS NOT NULL
    UNION ALL SELECT proc, record, start_ns FROM span WHERE record IS NOT NULL
    UNION ALL SELECT proc, record, end_ns FROM step WHERE record IS NOT NULL
    UNION ALL SELECT proc, record, time_ns FROM metric WHERE record IS NOT NULL
    UNION ALL SELECT proc, record, time_ns FROM memory WHERE record IS NOT NULL
    UNION ALL SELECT proc, record, time_ns FROM sample_batch WHERE record IS NOT NULL
)
GROUP BY proc ORDER BY proc;

-- name: records_merge
SELECT proc, CAST(sum(present) AS BIGINT) AS present, max(last_record) AS last_record, min(first_ns) AS first_ns, max(last_ns) AS last_ns
FROM (
    SELECT proc, sum(num_records) AS present, max(last_record) AS last_record, min(first_recorded_ns) AS first_ns, max(last_recorded_ns) AS last_ns
    FROM (SELECT proc, num_records, last_record, first_recorded_ns, last_recorded_ns FROM partial_profile_collectives
        UNION ALL SELECT proc, num_records, last_record, first_recorded_ns, last_recorded_ns FROM partial_profile_spans)
    GROUP BY proc HAVING sum(num_records) > 0
    UNION ALL SELECT proc, count(*), max(record), min(start_ns), max(start_ns) FROM (
        SELECT proc, record, end_ns AS start_ns FROM step WHERE record IS NOT NULL
        UNION ALL SELECT proc, record, time_ns FROM metric WHERE record IS NOT NULL
        UNION ALL SELECT proc, record, time_ns FROM memory WHERE record IS NOT NULL
        UNION ALL SELECT proc, record, time_ns FROM sample_batch WHERE record IS NOT NULL
    ) GROUP BY proc
)
GROUP BY proc ORDER BY proc;

-- name: processes
-- One row per process and incarnation, with what is known of its ring and its end.
SELECT proc, incarnation, rank, node, exit_kind, num_records, num_dropped, exit_error
FROM process ORDER BY incarnation, rank, proc;

-- name: hooks
-- The last capture row of every hook and process.
SELECT proc, any_value(rank) AS rank, hook, arg_max(tier, time_ns) AS tier, arg_max(is_on, time_ns) AS is_on,
    arg_max(why, time_ns) AS why, max(num_rows) AS num_rows, max(num_dropped) AS num_dropped, max(num_errors) AS num_errors,
    max(num_calls) AS num_calls, max(num_timed_calls) AS num_timed_calls, max(timed_ns) AS timed_ns,
    max(timed_ns_squared) AS timed_ns_squared
FROM capture GROUP BY proc, hook ORDER BY hook, proc;

-- name: tiers
-- Which mechanism saw the operations.
SELECT coalesce(tier, 'unknown') AS tier, CAST(count(*) AS BIGINT) AS num_operations FROM collective GROUP BY 1 ORDER BY 2 DESC, 1;

-- name: tiers_merge
SELECT coalesce(tier, 'unknown') AS tier, CAST(sum(num_operations) AS BIGINT) AS num_operations FROM partial_profile_collectives GROUP BY 1 ORDER BY 2 DESC, 1;

-- name: step_time
-- Time inside steps, by process.
SELECT proc, CAST(sum(end_ns - start_ns) AS BIGINT) AS step_ns FROM step WHERE end_ns > start_ns GROUP BY proc;

-- name: tables
-- Rows by table are counted one table at a time: {table} is replaced.
SELECT CAST(count(*) AS BIGINT) FROM {table};
