-- name: layout
-- The layout that the run declares.
SELECT dp, tp, pp, cp FROM run ORDER BY run_id LIMIT 1;

-- name: world
-- Ranks that the run ought to have, as it says itself.
SELECT CAST(max(world_size) AS BIGINT) AS world_size FROM run;

-- name: transfers
-- Whether ranks send to each other.
SELECT 1 FROM collective WHERE op IN ('send', 'recv') LIMIT 1;

-- name: declared
-- Samples of a step and tokens of a sample, as the run declares them.
SELECT global_batch, sequence_length FROM run ORDER BY run_id LIMIT 1;

-- name: durations
-- Each counted step in the order of time: sum of its durations over the ranks, and their number.
SELECT incarnation, step, CAST(sum(duration_ns) AS BIGINT) AS duration_ns, CAST(count(*) AS BIGINT) AS num_ranks
FROM counted_step GROUP BY incarnation, step ORDER BY incarnation, step;

-- name: told
-- Samples and tokens of each counted step as the job told them, over data coordinates: the most that a rank of each tells.
SELECT incarnation, step, CAST(sum(samples) AS BIGINT) AS samples, CAST(sum(tokens) AS BIGINT) AS tokens,
    CAST(count(samples) AS BIGINT) AS num_samples, CAST(count(tokens) AS BIGINT) AS num_tokens, bool_or(is_skipped) AS is_skipped
FROM (
    SELECT s.incarnation, s.step, c.coordinate, max(s.samples) AS samples, max(s.tokens) AS tokens, bool_or(s.is_skipped) AS is_skipped
    FROM step s JOIN (SELECT unnest($ranks) AS rank, unnest($coordinates) AS coordinate) c USING (rank)
    SEMI JOIN counted_step k ON k.proc = s.proc AND k.incarnation = s.incarnation AND k.step = s.step
    GROUP BY s.incarnation, s.step, c.coordinate
) GROUP BY incarnation, step ORDER BY incarnation, step;

-- name: drawn
-- Samples that the loaders handed over for each counted step, over data coordinates: the most that a rank of each drew.
SELECT incarnation, step, CAST(sum(samples) AS BIGINT) AS samples, CAST(count(samples) AS BIGINT) AS num_samples
FROM (
    SELECT incarnation, step, coordinate, max(samples) AS samples FROM (
        SELECT b.incarnation, b.step, c.coordinate, b.proc, sum(b.num_samples) AS samples
        FROM sample_batch b JOIN (SELECT unnest($ranks) AS rank, unnest($coordinates) AS coordinate) c USING (rank)
        SEMI JOIN counted_step k ON k.proc = b.proc AND k.incarnation = b.incarnation AND k.step = b.step
        GROUP BY b.incarnation, b.step, c.coordinate, b.proc
    ) GROUP BY incarnation, step, coordinate
) GROUP BY incarnation, step ORDER BY incarnation, step;

-- name: thinned
-- Whether not every batch was observed (words of hooks/loader_budget.py): then the batches of a step are no sum of it.
SELECT 1 FROM capture WHERE hook = 'data_loading' AND why LIKE '%one batch in %' LIMIT 1;

-- name: losses
-- The loss of each counted step as logged, mean over the ranks, summed as whole numbers of 1e-9 (sums of floats depend on their order).
SELECT m.incarnation, m.step, CAST(sum(CAST(round(m.value * 1e9) AS HUGEINT)) AS DOUBLE) / 1e9 / count(*) AS loss
FROM metric m SEMI JOIN counted_step k ON k.proc = m.proc AND k.incarnation = m.incarnation AND k.step = m.step
WHERE m.name = 'loss' AND isfinite(m.value) AND abs(m.value) < 1e24 GROUP BY m.incarnation, m.step ORDER BY m.incarnation, m.step;

-- name: memory
-- Most memory that a rank held at a step's end: of the device's allocator where it uses one, else resident.
SELECT coalesce(max(allocated_bytes), max(rss_bytes)) FROM memory;
