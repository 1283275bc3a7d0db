-- name: run
-- What is known of the run itself.
SELECT * FROM run ORDER BY created_ns, run_id LIMIT 1;

-- name: artifacts
-- What the run was made from, one row for each version of each thing.
SELECT DISTINCT kind, name, version, digest, source FROM artifact ORDER BY kind, name, version NULLS FIRST, digest NULLS FIRST, source;

-- name: nodes
-- The hosts, and how many processes of the run each of them had.
SELECT n.node, n.host, n.num_cpus, n.memory_bytes, n.kernel, n.os, CAST(count(DISTINCT p.proc) AS BIGINT) AS num_processes
FROM node n LEFT JOIN process p ON p.node = n.node GROUP BY ALL ORDER BY n.node;

-- name: devices
-- The accelerators by kind.
SELECT name, memory_bytes, CAST(count(DISTINCT device_uuid) AS BIGINT) AS num_devices FROM device GROUP BY ALL ORDER BY ALL;

-- name: groups
-- The process groups by kind.
SELECT mesh_dimension, backend, size, CAST(count(DISTINCT group_id) AS BIGINT) AS num_groups FROM process_group GROUP BY ALL ORDER BY ALL;

-- name: manifests
-- Who wrote the run: importers say so, and what was wrong with their files.
SELECT manifest FROM run WHERE manifest IS NOT NULL;
