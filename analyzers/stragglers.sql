-- name: places
-- Where each rank ran, in the last incarnation that knows it.
SELECT rank, arg_max(node, coalesce(incarnation, 0)) AS node
FROM process WHERE rank IS NOT NULL GROUP BY rank ORDER BY rank;

-- name: work
-- Tokens and samples of each rank's counted steps, where the job told them.
SELECT t.incarnation, t.step, t.rank, t.tokens, t.samples FROM step t
JOIN _late_step s ON s.incarnation = t.incarnation AND s.step = t.step AND s.is_told
WHERE t.rank IS NOT NULL AND (t.tokens IS NOT NULL OR t.samples IS NOT NULL) ORDER BY t.incarnation, t.step, t.rank;

-- name: extent
-- How many ranks and counted steps there are at all.
SELECT (SELECT count(DISTINCT rank) FROM process), (SELECT count(*) FROM counted_step);
