-- name: rows
SELECT * FROM part_sampled;
