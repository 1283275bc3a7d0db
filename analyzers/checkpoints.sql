-- name: operations
-- Every save and load of every process, the last that was told of it, with the boot of its host's clock.
WITH told AS (
    SELECT *, row_number() OVER (PARTITION BY incarnation, proc, record
        ORDER BY end_ns IS NULL, digest IS NULL, blocking_end_ns IS NULL) AS place
    FROM checkpoint),
boots AS (SELECT proc, min(boot_id) AS boot_id FROM process GROUP BY proc)
SELECT c.incarnation, c.proc, c.rank, c.step, c.global_step, c.action, c.mode, c.format, c.path, c.start_ns, c.blocking_end_ns, c.end_ns,
    c.bytes, c.num_files, c.world_size, c.layout, c.digest, c.outcome, b.boot_id,
    c.whole_files, c.whole_bytes, c.read_ratio
FROM told c LEFT JOIN boots b USING (proc) WHERE c.place = 1 OR c.record IS NULL
ORDER BY c.start_ns, c.incarnation, c.rank, c.proc;

-- name: blocking
-- Per process the union of the times in which a save or load held it up, inside its steps, and the time from first step to last.
WITH told AS (
    SELECT incarnation, proc, start_ns, max(blocking_end_ns) AS end_ns FROM checkpoint
    WHERE blocking_end_ns >= start_ns GROUP BY incarnation, proc, record, start_ns),
run AS (SELECT incarnation, proc, min(start_ns) AS first_ns, max(end_ns) AS last_ns FROM step WHERE end_ns >= start_ns GROUP BY incarnation, proc),
inside AS (
    SELECT t.incarnation, t.proc, greatest(t.start_ns, r.first_ns) AS start_ns, least(t.end_ns, r.last_ns) AS end_ns
    FROM told t JOIN run r USING (incarnation, proc)),
ordered AS (
    SELECT *, max(end_ns) OVER (PARTITION BY incarnation, proc ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM inside),
held AS (
    SELECT incarnation, proc, sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns)))) AS blocking_ns
    FROM ordered GROUP BY incarnation, proc)
SELECT r.incarnation, r.proc, CAST(coalesce(h.blocking_ns, 0) AS BIGINT) AS blocking_ns, r.last_ns - r.first_ns AS run_ns
FROM run r LEFT JOIN held h USING (incarnation, proc) ORDER BY r.incarnation, r.proc;

-- name: incarnations
-- Begin and end of the steps of each incarnation (all its ranks), and how its processes ended.
WITH steps AS (
    SELECT incarnation, min(start_ns) AS first_ns, max(end_ns) AS last_ns, max(end_ns) FILTER (WHERE step = 0) AS first_end_ns,
        min(global_step) AS first_global, max(global_step) AS last_global, CAST(count(*) AS BIGINT) AS num_steps,
        CAST(count(global_step) AS BIGINT) AS num_global
    FROM step WHERE end_ns >= start_ns GROUP BY incarnation),
ends AS (
    SELECT incarnation, CAST(count(DISTINCT boot_id) AS BIGINT) AS num_boots, min(boot_id) AS boot_id,
        CAST(count(*) FILTER (WHERE exit_kind IN ('killed', 'failed')) AS BIGINT) AS num_killed
    FROM process GROUP BY incarnation)
SELECT s.incarnation, s.first_ns, s.last_ns, s.first_end_ns, s.num_steps, s.num_global, e.num_boots, e.boot_id, e.num_killed
FROM steps s LEFT JOIN ends e USING (incarnation) ORDER BY s.incarnation;

-- name: steps
-- Each step by its number in the whole training: its longest duration over the ranks of each incarnation.
SELECT incarnation, global_step, max(end_ns - start_ns) AS duration_ns FROM step
WHERE end_ns >= start_ns AND global_step IS NOT NULL GROUP BY ALL ORDER BY ALL;

-- name: step_time
-- Time of all steps of each incarnation, the longest over its ranks.
SELECT incarnation, CAST(max(total_ns) AS BIGINT) AS total_ns FROM (
    SELECT incarnation, proc, sum(end_ns - start_ns) AS total_ns FROM step WHERE end_ns >= start_ns GROUP BY incarnation, proc)
GROUP BY incarnation ORDER BY incarnation;
