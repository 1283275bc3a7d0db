-- name: hosts
-- Each process with its host's clock; the host of rank 0 is the first.
SELECT proc, min(boot_id) AS boot_id, min(rank) AS rank, min(node) AS node, min(host) AS host, min(incarnation) AS incarnation
FROM process GROUP BY proc ORDER BY min(rank) = 0 DESC, min(incarnation), min(rank), proc;

-- name: groups
-- The groups' members, run-length coded, by incarnation: an id may have other members after a restart.
SELECT group_id, incarnation, any_value(member_starts) AS starts, any_value(member_strides) AS strides, any_value(member_counts) AS counts
FROM process_group GROUP BY group_id, incarnation ORDER BY group_id, incarnation;

-- name: rows
-- Of the chosen processes the rows in groups that tie hosts together: of each group a sample by number, the same on all ranks.
SELECT c.*, h.host FROM collective c JOIN clock_chosen h USING (proc) JOIN clock_group g ON g.group_id = c.group_id
QUALIFY c.seq * 2654435761 % 4294967296 < 4294967296 * g.most // count(*) OVER (PARTITION BY c.incarnation, c.proc, c.group_id);

-- name: ends_partial
-- One row for each operation and host: who was last to start there among those whose start must precede other ends (sources), the first
-- end among those that must follow them (sinks), and the first end seen where all end together. all_to_all: not every member need depend
-- on every other. Operations without bytes need no exchange. quality: 2 device time, 1 seen at once (a trace, or a wait that blocked until
-- then), 0 seen late by an unknown time.
-- A wait of 20 us and more ended because the operation did; a shorter one may have begun when it was long over.
WITH told AS (
    SELECT hash(c.incarnation, c.group_id, c.seq, c.src, c.dst, c.tag, CASE WHEN c.op IN ('send', 'recv') THEN 'transfer' ELSE c.op END) AS op_key,
        c.host, c.issued_ns, c.completed_ns, coalesce(c.device_end_ns, c.completed_ns) AS end_ns,
        c.op IN ('all_reduce', 'all_gather', 'all_gather_into_tensor', 'reduce_scatter', 'reduce_scatter_tensor', 'barrier',
            'all_reduce_coalesced', 'all_gather_coalesced', 'all_gather_into_tensor_coalesced', 'reduce_scatter_coalesced',
            'reduce_scatter_tensor_coalesced') AS is_symmetric,
        is_symmetric OR c.op IN ('reduce', 'gather', 'send') OR (c.op IN ('broadcast', 'scatter') AND c.root = c.rank) AS is_source,
        is_symmetric OR c.op IN ('broadcast', 'scatter', 'recv') OR (c.op IN ('reduce', 'gather') AND c.root = c.rank) AS is_sink,
        is_symmetric OR c.op IN ('all_to_all', 'all_to_all_single') AS ends_together,
        CASE WHEN c.device_end_ns IS NOT NULL AND c.timing_source <> 'trace' THEN 2 WHEN c.timing_source IN ('trace', 'flight_recorder', 'device_event') THEN 1
            WHEN c.timing_source = 'wait' AND c.wait_end_ns - c.wait_begin_ns >= 20000 THEN 1 ELSE 0 END AS quality
    FROM clock_row c
    WHERE c.completed_ns IS NOT NULL AND c.issued_ns IS NOT NULL AND c.state = 'completed'
        AND (c.op = 'barrier' OR coalesce(c.bytes_in, 1) + coalesce(c.bytes_out, 1) > 0))
SELECT op_key, host, max(issued_ns) FILTER (WHERE is_source) AS source_ns, min(completed_ns) FILTER (WHERE is_sink) AS sink_ns,
    min(end_ns) FILTER (WHERE ends_together) AS end_ns, max(quality) AS quality
FROM told GROUP BY op_key, host;

-- name: ends_merge
SELECT op_key, host, max(source_ns) AS source_ns, min(sink_ns) AS sink_ns, min(end_ns) AS end_ns, max(quality) AS quality
FROM partial_clocks_ends GROUP BY op_key, host ORDER BY host, op_key;

-- name: readings
-- Clock readings, both clocks at one moment: those with a round trip to a peer, and one a minute and host of the others.
SELECT boot_id, monotonic_ns, wall_ns, CASE WHEN is_synchronised THEN maximum_error_ns END AS error_ns, store_round_trip_ns, peer_boot_id, peer_monotonic_ns
FROM clock WHERE boot_id IS NOT NULL AND monotonic_ns IS NOT NULL AND wall_ns IS NOT NULL
QUALIFY peer_monotonic_ns IS NOT NULL OR row_number() OVER (PARTITION BY boot_id, monotonic_ns // 60000000000 ORDER BY monotonic_ns, proc) = 1
ORDER BY boot_id, monotonic_ns, proc;
