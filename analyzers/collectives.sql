-- name: member
-- One row for each rank of each operation: when it arrived and when it was done, on one clock. A send and its receive are one operation.
-- Device times where there are any, else the host's. Queued behind its predecessor in the group an operation has not been late: it arrives
-- when that was done, which cannot be after its own end. done_ns: the end that this rank saw; ended_ns: the same, but of an operation that ends
-- for all together and was polled for, an upper bound, the earliest that any rank saw.
-- makes: others wait for this rank; waits: this rank waits for others (causality by kind of operation).
WITH host AS (SELECT proc, min(boot_id) AS boot_id FROM process GROUP BY proc),
team AS (SELECT group_id, max(size) AS size FROM process_group GROUP BY group_id),
stamped AS (
    SELECT c.incarnation, c.group_id, CASE WHEN c.op IN ('send', 'recv') THEN 'send_recv' ELSE c.op END AS op, c.seq,
        CASE WHEN c.op IN ('send', 'recv') THEN hash(c.src, c.dst, c.tag) ELSE 0 END AS pair, c.src, c.dst, c.tag, c.op AS own_op, c.proc,
        c.rank, c.record, c.step, c.root, h.boot_id, CASE WHEN c.op IN ('send', 'recv') THEN 2 ELSE t.size END AS size,
        CASE WHEN c.op IN ('all_reduce', 'all_gather', 'all_gather_into_tensor', 'reduce_scatter', 'reduce_scatter_tensor', 'all_to_all',
                'all_to_all_single', 'barrier', 'all_reduce_coalesced', 'all_gather_coalesced', 'all_gather_into_tensor_coalesced',
                'reduce_scatter_coalesced', 'reduce_scatter_tensor_coalesced') THEN 'all'
            WHEN c.op IN ('broadcast', 'broadcast_coalesced', 'scatter') THEN 'from_root' WHEN c.op IN ('reduce', 'gather', 'gather_into_tensor') THEN 'to_root'
            WHEN c.op IN ('send', 'recv') THEN 'pair' END AS kind,
        CASE WHEN c.op IN ('all_gather', 'all_gather_into_tensor', 'all_gather_coalesced', 'all_gather_into_tensor_coalesced')
                THEN coalesce(c.bytes_out, c.bytes_in * t.size)
            WHEN c.op IN ('gather', 'gather_into_tensor') THEN c.bytes_in * t.size WHEN c.op = 'scatter' THEN c.bytes_out * t.size
            WHEN c.op = 'barrier' THEN 0 ELSE coalesce(c.bytes_in, c.bytes_out) END AS moved_bytes,
        c.device_start_ns IS NOT NULL AND c.device_end_ns IS NOT NULL AS is_device, is_device OR c.issued_ns IS NOT NULL AS is_begun,
        NOT is_device AND c.timing_source = 'poll' AS is_polled,
        aligned_ns(CASE WHEN is_device THEN c.device_start_ns ELSE c.issued_ns END) AS begun_ns,
        aligned_ns(CASE WHEN is_device THEN c.device_end_ns ELSE c.completed_ns END) AS done_ns
    FROM collective c LEFT JOIN host h USING (proc) LEFT JOIN team t USING (group_id)
    WHERE true
), ended AS (
    SELECT *, done_ns AS ended_ns FROM stamped
)
SELECT incarnation, group_id, op, seq, pair, src, dst, tag, kind, proc, rank, step, boot_id, size, root, moved_bytes, is_device, is_begun, done_ns, ended_ns,
    greatest(begun_ns, least(coalesce(lag(ended_ns) OVER same, begun_ns), ended_ns)) AS arrival_ns, coalesce(lag(seq) OVER same = seq, false) AS is_twice,
    CASE kind WHEN 'from_root' THEN rank = root WHEN 'pair' THEN own_op = 'send' ELSE true END AS makes,
    CASE kind WHEN 'from_root' THEN rank <> root WHEN 'to_root' THEN rank = root WHEN 'pair' THEN own_op = 'recv' ELSE true END AS waits
FROM ended WINDOW same AS (PARTITION BY proc, incarnation, group_id, pair ORDER BY seq, record);

-- name: operation
-- One row for each operation. last_ns: the arrival that the others waited for; transfer_ns: from there to the end, median over the ranks that
-- wait; margin_ns: how much later the last one came than the last but one. why: what keeps it from being matched; null if it is.
WITH told AS (
    SELECT incarnation, group_id, op, seq, pair, any_value(kind) AS kind, max(size) AS size, min(src) AS src, min(dst) AS dst, min(tag) AS tag, min(step) AS step,
        max(root) AS root, max(moved_bytes) AS moved_bytes, count(*) AS num_rows, count(arrival_ns) AS num_arrivals, count(*) FILTER (is_begun) AS num_begun, count(*) FILTER (waits) AS num_waiters,
        count(done_ns) FILTER (waits) AS num_done, count(*) FILTER (makes) AS num_makers, bool_or(is_twice) AS is_twice, bool_or(is_device) AS is_device,
        bool_and(is_device) = bool_or(is_device) AS is_one_kind, count(boot_id) AS num_hosted, min(boot_id) = max(boot_id) AS is_one_host,
        min(arrival_ns) AS first_ns, max(arrival_ns) FILTER (makes) AS last_ns, arg_max(rank, arrival_ns) FILTER (makes) AS last_rank,
        max(arrival_ns, 2) FILTER (makes) AS latest, min(arrival_ns) FILTER (waits) AS first_waiter_ns, sum(arrival_ns) AS arrivals,
        quantile_disc(ended_ns, 0.5) AS ended_ns, max(done_ns) - min(done_ns) AS end_skew_ns
    FROM _member GROUP BY incarnation, group_id, op, seq, pair
), apart AS (
    SELECT t.incarnation, t.group_id, t.op, t.seq, t.pair, quantile_disc(m.ended_ns - greatest(t.last_ns, m.arrival_ns), 0.5) AS transfer_ns,
        sum(greatest(0, t.last_ns - m.arrival_ns)) AS wait_ns, max(greatest(0, t.last_ns - m.arrival_ns)) AS longest_wait_ns
    FROM told t JOIN _member m ON m.incarnation = t.incarnation AND m.group_id = t.group_id AND m.op = t.op AND m.seq = t.seq AND m.pair = t.pair
    WHERE t.kind <> 'all' AND m.waits GROUP BY ALL
), timed AS (
    SELECT t.*, CASE WHEN t.kind = 'all' THEN t.ended_ns - t.last_ns ELSE a.transfer_ns END AS transfer_ns,
        CASE WHEN t.kind = 'all' THEN CAST(t.last_ns AS HUGEINT) * t.num_rows - t.arrivals ELSE a.wait_ns END AS wait_ns,
        CASE WHEN t.kind = 'all' THEN t.last_ns - t.first_ns ELSE a.longest_wait_ns END AS longest_wait_ns,
        CASE WHEN t.kind = 'all' THEN t.end_skew_ns END AS skew_ns,
        CASE WHEN t.kind IN ('from_root', 'pair') THEN greatest(0, t.last_ns - t.first_waiter_ns) ELSE t.last_ns - coalesce(t.latest[2], t.last_ns) END AS margin_ns
    FROM told t LEFT JOIN apart a ON a.incarnation = t.incarnation AND a.group_id = t.group_id AND a.op = t.op AND a.seq = t.seq AND a.pair = t.pair
)
SELECT incarnation, group_id, op, seq, pair, src, dst, tag, root, step, kind, size, num_rows, moved_bytes, is_device, is_one_host, first_ns, last_ns, last_rank,
    transfer_ns, CAST(wait_ns AS BIGINT) AS wait_ns, longest_wait_ns, skew_ns AS end_skew_ns, margin_ns,
    CASE WHEN moved_bytes > 0 THEN CAST(pow(4, ceil(log2(moved_bytes) / 2)) AS BIGINT) ELSE moved_bytes END AS size_class,
    CASE WHEN transfer_ns > 0 AND moved_bytes > 0 THEN CAST(CAST(moved_bytes AS HUGEINT) * 1000000000 // transfer_ns AS BIGINT) END AS algbw,
    CASE WHEN kind IS NULL THEN 'who waits for whom is not known for this kind of operation' WHEN size IS NULL THEN 'nobody told the members of the group'
        WHEN is_twice THEN 'its number occurs twice: the group was made anew'
        WHEN num_rows < size THEN 'not every member left a row of it' WHEN num_rows > size THEN 'more rows than members'
        WHEN num_makers = 0 OR num_waiters = 0 AND size > 1 THEN 'nobody told its root' WHEN NOT is_one_host AND num_arrivals < num_begun THEN 'nothing ties the clock of one of its hosts to the others'
        WHEN num_arrivals < size OR num_done < num_waiters THEN 'not every member left its end'
        WHEN NOT is_one_kind THEN 'some members have device times of it and some have not'
        WHEN num_hosted < size THEN 'a member whose host is not known'
        WHEN transfer_ns < 0 THEN 'it seems to end before its last member came: its times contradict each other' END AS why
FROM timed;

-- name: totals
-- Operations by group, kind and size class: how many, how many of them matched, bytes, times, maxima, and what waiting the last ones caused.
SELECT group_id, op, size_class, CAST(count(*) AS BIGINT) AS num_operations, CAST(count(*) FILTER (why IS NULL) AS BIGINT) AS num_matched,
    CAST(sum(num_rows) FILTER (why IS NULL) AS BIGINT) AS num_ranks, max(size) AS size,
    CAST(sum(moved_bytes) FILTER (why IS NULL AND transfer_ns > 0) AS DECIMAL(38, 0)) AS moved_bytes,
    CAST(sum(transfer_ns) FILTER (why IS NULL AND moved_bytes > 0) AS DECIMAL(38, 0)) AS moving_ns, CAST(sum(transfer_ns) FILTER (why IS NULL) AS DECIMAL(38, 0)) AS transfer_ns,
    CAST(sum(wait_ns) FILTER (why IS NULL) AS DECIMAL(38, 0)) AS wait_ns, max(transfer_ns) FILTER (why IS NULL) AS longest_transfer_ns,
    max(longest_wait_ns) FILTER (why IS NULL) AS longest_wait_ns, max(end_skew_ns) FILTER (why IS NULL) AS longest_skew_ns,
    max(algbw) FILTER (why IS NULL) AS most_algbw, CAST(count(algbw) FILTER (why IS NULL) AS BIGINT) AS num_with_bandwidth,
    CAST(count(*) FILTER (why IS NULL AND margin_ns > coalesce(end_skew_ns, 0) + clock_error_ns(is_one_host)) AS BIGINT) AS num_named,
    CAST(count(*) FILTER (why IS NULL AND is_device) AS BIGINT) AS num_device
FROM _operation GROUP BY group_id, op, size_class ORDER BY group_id, op, size_class;

-- name: placed
-- Bytes S, transfer time and bandwidth by group and operation. all_bytes: of all operations; the others of those that are matched.
SELECT group_id, op, max(size) AS size, CAST(count(*) AS BIGINT) AS num_operations, CAST(sum(moved_bytes) AS DECIMAL(38, 0)) AS all_bytes,
    CAST(count(moved_bytes) AS BIGINT) AS num_with_bytes, CAST(count(*) FILTER (why IS NULL) AS BIGINT) AS num_matched,
    CAST(sum(transfer_ns) FILTER (why IS NULL) AS DECIMAL(38, 0)) AS transfer_ns,
    CAST(sum(moved_bytes) FILTER (why IS NULL AND transfer_ns > 0) AS DECIMAL(38, 0)) AS moved_bytes,
    CAST(sum(transfer_ns) FILTER (why IS NULL AND moved_bytes > 0) AS DECIMAL(38, 0)) AS moving_ns
FROM _operation GROUP BY group_id, op ORDER BY group_id, op;

-- name: ranks
-- Where each rank runs, and how its device is connected.
SELECT p.rank, any_value(p.node ORDER BY p.incarnation) AS node, any_value(p.boot_id ORDER BY p.incarnation) AS boot_id,
    any_value(p.numa_nodes ORDER BY p.incarnation) AS numa_nodes, any_value(p.device_uuid ORDER BY p.incarnation) AS device_uuid,
    any_value(d.pci_bus_id ORDER BY p.incarnation) AS pci_bus_id, any_value(d.numa_node ORDER BY p.incarnation) AS device_numa_node,
    any_value(d.nvlink_peers ORDER BY p.incarnation) AS nvlink_peers
FROM process p LEFT JOIN (SELECT device_uuid, any_value(pci_bus_id) AS pci_bus_id, any_value(numa_node) AS numa_node, any_value(nvlink_peers) AS nvlink_peers
    FROM device GROUP BY device_uuid) d USING (device_uuid)
WHERE p.rank IS NOT NULL GROUP BY p.rank ORDER BY p.rank;

-- name: link
-- Transfers in counted steps, of sends and receives with their pair of ranks. part: the quarter of the steps (of less than 40: all are one).
CREATE OR REPLACE TEMP VIEW _link AS
SELECT incarnation, step, part, group_id, op, size_class, CASE WHEN kind = 'pair' THEN src END AS src, CASE WHEN kind = 'pair' THEN dst END AS dst, transfer_ns
FROM _operation JOIN (SELECT incarnation, step, (row_number() OVER (ORDER BY incarnation, step) - 1) * CASE WHEN count(*) OVER () < 40 THEN 1 ELSE 4 END // count(*) OVER () AS part
    FROM (SELECT DISTINCT incarnation, step FROM _operation) SEMI JOIN counted_step USING (incarnation, step)) USING (incarnation, step)
WHERE why IS NULL AND size_class > 0;

-- name: links
-- Transfers by group (or pair), kind and size class in each part of the steps.
SELECT group_id, op, size_class, src, dst, part, CAST(count(*) AS BIGINT) AS num_operations, quantile_disc(transfer_ns, 0.5) AS typical_ns
FROM _link GROUP BY ALL ORDER BY ALL;

-- name: link_steps
-- The same step by step.
SELECT incarnation, step, part, group_id, op, size_class, src, dst, CAST(count(*) AS BIGINT) AS num_operations, quantile_disc(transfer_ns, 0.5) AS typical_ns,
    CAST(sum(transfer_ns) AS DECIMAL(38, 0)) AS transfer_ns
FROM _link GROUP BY ALL ORDER BY ALL;

-- name: link_durations
-- How long each counted step took its slowest rank.
SELECT incarnation, step, max(duration_ns) AS duration_ns FROM counted_step GROUP BY incarnation, step ORDER BY incarnation, step;

-- name: distributions
-- Transfer, end skew, bandwidth of each matched operation, and the wait of each of its ranks, in logarithmic buckets.
SELECT group_id, op, size_class, measure, log_bucket(value) AS bucket, CAST(count(*) AS BIGINT) AS num FROM (
    SELECT group_id, op, size_class, 'transfer' AS measure, transfer_ns AS value FROM _operation WHERE why IS NULL
    UNION ALL SELECT group_id, op, size_class, 'end_skew', end_skew_ns FROM _operation WHERE why IS NULL
    UNION ALL SELECT group_id, op, size_class, 'algbw', algbw FROM _operation WHERE why IS NULL
    UNION ALL SELECT o.group_id, o.op, o.size_class, 'wait', CASE WHEN m.waits THEN greatest(0, o.last_ns - m.arrival_ns) ELSE 0 END
    FROM _operation o JOIN _member m ON m.incarnation = o.incarnation AND m.group_id = o.group_id AND m.op = o.op AND m.seq = o.seq AND m.pair = o.pair
    WHERE o.why IS NULL
) WHERE value IS NOT NULL GROUP BY ALL ORDER BY ALL;

-- name: unmatched
-- Why operations are not matched.
SELECT group_id, op, why, CAST(count(*) AS BIGINT) AS num_operations FROM _operation WHERE why IS NOT NULL GROUP BY ALL ORDER BY ALL;

-- name: caused
-- By rank: what the others waited for it, where its being last is beyond what the ends and the clocks leave open.
SELECT last_rank AS rank, CAST(count(*) AS BIGINT) AS num_operations, CAST(sum(wait_ns) AS DECIMAL(38, 0)) AS wait_ns FROM _operation
WHERE why IS NULL AND margin_ns > coalesce(end_skew_ns, 0) + clock_error_ns(is_one_host) GROUP BY last_rank ORDER BY last_rank;

-- name: listed
-- The operations during which most was waited, in the order of time.
SELECT incarnation, group_id, op, seq, pair, src, dst, tag, root, step, size, moved_bytes, first_ns, last_ns,
    CASE WHEN margin_ns > coalesce(end_skew_ns, 0) + clock_error_ns(is_one_host) THEN last_rank END AS named_rank, transfer_ns, wait_ns, end_skew_ns, algbw, is_device
FROM (FROM _operation WHERE why IS NULL ORDER BY wait_ns DESC, incarnation, group_id, op, seq, pair LIMIT {limit})
ORDER BY incarnation, first_ns, group_id, op, seq, pair;

-- name: listed_members
-- The ranks of these operations.
SELECT m.incarnation, m.group_id, m.op, m.seq, m.pair, m.rank, m.arrival_ns, m.done_ns, CASE WHEN m.waits THEN greatest(0, o.last_ns - m.arrival_ns) ELSE 0 END AS wait_ns
FROM (FROM _operation WHERE why IS NULL ORDER BY wait_ns DESC, incarnation, group_id, op, seq, pair LIMIT {limit}) o
JOIN _member m ON m.incarnation = o.incarnation AND m.group_id = o.group_id AND m.op = o.op AND m.seq = o.seq AND m.pair = o.pair
ORDER BY m.incarnation, m.group_id, m.op, m.seq, m.pair, m.rank;
