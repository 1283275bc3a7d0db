-- name: readings
-- What each interface sent between its first and its last reading; a counter that fell (reset) counts from there on.
SELECT node, nic, kind, min(time_ns) AS from_ns, max(time_ns) AS until_ns, CAST(count(sent) AS BIGINT) AS num_differences,
    CAST(sum(sent) FILTER (sent >= 0) AS BIGINT) AS sent_bytes
FROM (SELECT node, nic, kind, time_ns, tx_bytes - lag(tx_bytes) OVER (PARTITION BY node, nic ORDER BY time_ns) AS sent
    FROM nic_sample WHERE nic IS NOT NULL AND tx_bytes IS NOT NULL)
GROUP BY node, nic, kind ORDER BY node, nic;

-- name: nodes
-- Where each interface lies: those without a PCI device are bonds, bridges and other virtual ones.
SELECT node, nics FROM node WHERE nics IS NOT NULL ORDER BY node;

-- name: places
-- The node of each rank; imported traces tell none.
SELECT incarnation, rank, min(node) AS node FROM process WHERE rank IS NOT NULL AND node IS NOT NULL AND boot_id <> 'imported' GROUP BY incarnation, rank ORDER BY incarnation, rank;

-- name: windows
-- From the first to the last reading of each node.
SELECT node, min(time_ns) AS from_ns, max(time_ns) AS until_ns FROM nic_sample WHERE tx_bytes IS NOT NULL GROUP BY node;

-- name: moved_partial
-- Bytes S of the operations of each node's ranks that lie between its first and last reading, summed over the ranks: by group, operation, root,
-- and for sends the receiving rank. What straddles the window is counted, not added.
WITH host AS (SELECT proc, min(node) AS node FROM process GROUP BY proc),
team AS (SELECT group_id, max(size) AS size FROM process_group GROUP BY group_id),
told AS (
    SELECT h.node, c.incarnation, c.group_id, c.op, c.root, CASE WHEN c.op = 'send' THEN c.dst END AS dst,
        c.issued_ns >= b.from_ns AND coalesce(c.device_end_ns, c.completed_ns, c.issued_ns) <= b.until_ns AS is_inside,
        c.issued_ns < b.until_ns AND coalesce(c.device_end_ns, c.completed_ns, c.issued_ns) > b.from_ns AS is_near,
        CASE WHEN c.op IN ('all_gather', 'all_gather_into_tensor', 'all_gather_coalesced', 'all_gather_into_tensor_coalesced')
                THEN coalesce(c.bytes_out, c.bytes_in * t.size)
            WHEN c.op IN ('gather', 'gather_into_tensor') THEN c.bytes_in * t.size WHEN c.op = 'scatter' THEN c.bytes_out * t.size
            WHEN c.op IN ('barrier', 'monitored_barrier') THEN 0 ELSE coalesce(c.bytes_in, c.bytes_out) END AS moved_bytes
    FROM collective c JOIN host h USING (proc) JOIN nic_window b ON b.node = h.node LEFT JOIN team t USING (group_id)
    WHERE c.op <> 'recv' AND c.issued_ns IS NOT NULL
)
SELECT node, incarnation, group_id, op, root, dst, CAST(count(*) FILTER (is_inside) AS BIGINT) AS num_rows,
    CAST(sum(moved_bytes) FILTER (is_inside) AS DECIMAL(38, 0)) AS moved_bytes, CAST(count(*) FILTER (is_near AND NOT is_inside) AS BIGINT) AS num_straddling,
    CAST(count(*) FILTER (is_inside AND moved_bytes IS NULL) AS BIGINT) AS num_without_bytes, CAST(count(*) FILTER (is_near) AS BIGINT) AS num_near
FROM told GROUP BY ALL;

-- name: moved_merge
SELECT node, incarnation, group_id, op, root, dst, CAST(sum(num_rows) AS BIGINT) AS num_rows, CAST(sum(moved_bytes) AS DECIMAL(38, 0)) AS moved_bytes,
    CAST(sum(num_straddling) AS BIGINT) AS num_straddling, CAST(sum(num_without_bytes) AS BIGINT) AS num_without_bytes
FROM partial_amplification_moved GROUP BY node, incarnation, group_id, op, root, dst HAVING sum(num_near) > 0 ORDER BY ALL;
