-- name: rows
SELECT * FROM part_sampled;

-- name: focus
SELECT * FROM part_sampled;
