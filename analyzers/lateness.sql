-- name: steps
-- Counted steps: ended, not the first, left out by no process. Of a large run the steps of the sample; the first
-- step of a block is then only there for what the next one inherits.
CREATE OR REPLACE TEMP TABLE _late_step AS
SELECT incarnation, step, {is_told} AS is_told, quantile_disc(end_ns - start_ns, 0.5) AS duration_ns
FROM step WHERE end_ns >= start_ns AND step > 0 AND {is_chosen}
GROUP BY incarnation, step HAVING bool_and(left_out IS NULL);

-- name: gone
-- Members of groups that left no row of these operations.
CREATE OR REPLACE TEMP TABLE _late_gone (incarnation BIGINT, group_id VARCHAR, ranks INTEGER[]);

-- name: rows
-- What each rank did of these steps' operations, on the common clock. begin: on the device where that is known, else on the host; a device
-- operation of which only the launch is known (nobody on the host saw it end) tells nothing. end: where it was seen, not merely found later: by
-- poll, or by a wait that came later and had nothing to wait for.
CREATE OR REPLACE TEMP TABLE _late_row AS
WITH place AS (SELECT proc, incarnation, min(boot_id) AS boot_id, min(mesh_pp) AS stage FROM process GROUP BY proc, incarnation),
teams AS (
    SELECT group_id, incarnation, max(size) AS size, max(backend) AS backend, row_number() OVER (ORDER BY incarnation, group_id) AS team
    FROM process_group GROUP BY group_id, incarnation),
causes AS (
    SELECT unnest(['broadcast', 'scatter', 'broadcast_coalesced']) AS op, 'root' AS kind UNION ALL
    SELECT unnest(['reduce', 'gather', 'gather_into_tensor']), 'leaf' UNION ALL SELECT unnest(['send', 'recv']), 'pair' UNION ALL
    SELECT unnest(['all_reduce', 'all_gather', 'all_gather_into_tensor', 'reduce_scatter', 'reduce_scatter_tensor', 'all_to_all',
        'all_to_all_single', 'barrier', 'all_reduce_coalesced', 'all_gather_coalesced', 'all_gather_into_tensor_coalesced',
        'reduce_scatter_coalesced', 'reduce_scatter_tensor_coalesced', 'all_reduce_sparse']), 'all')
SELECT c.incarnation, c.step, t.team, CASE WHEN k.kind = 'pair' THEN hash(c.src, c.dst, coalesce(c.tag, 0)) ELSE 0 END AS pair, c.seq,
    CASE WHEN k.kind = 'pair' THEN 'transfer' ELSE c.op END AS op, k.kind, CASE WHEN k.kind = 'pair' THEN 2 ELSE t.size END AS size,
    CASE WHEN k.kind <> 'pair' THEN len(g.ranks) ELSE list_contains(g.ranks, c.src)::INTEGER + list_contains(g.ranks, c.dst)::INTEGER END AS num_gone,
    CASE WHEN k.kind <> 'pair' THEN g.ranks[1] WHEN list_contains(g.ranks, c.src) THEN c.src WHEN list_contains(g.ranks, c.dst) THEN c.dst END AS gone, c.proc, c.rank, p.boot_id, coalesce(p.stage, c.stage) AS stage,
    CASE k.kind WHEN 'root' THEN c.rank = c.root WHEN 'leaf' THEN c.rank <> c.root WHEN 'pair' THEN c.op = 'send' ELSE true END AS is_cause,
    CASE k.kind WHEN 'root' THEN c.rank <> c.root WHEN 'leaf' THEN c.rank = c.root WHEN 'pair' THEN c.op = 'recv' ELSE true END AS is_waiter,
    c.device_start_ns IS NOT NULL OR c.timing_source IN ('device_event', 'trace') AS is_device,
    coalesce(c.device_start_ns, c.issued_ns) - {moved} AS begin_ns,
    coalesce(c.device_end_ns, CASE WHEN c.timing_source IN ('device_event', 'trace', 'flight_recorder') OR (c.timing_source = 'wait'
        AND (c.wait_begin_ns - coalesce(c.returned_ns, c.issued_ns) <= {blink_ns} OR c.wait_end_ns - c.wait_begin_ns > {blink_ns})) THEN c.completed_ns END) - {moved} AS end_ns,
    c.wait_begin_ns - {moved} AS wait_begin_ns, c.wait_end_ns - {moved} AS wait_end_ns
FROM {source} c SEMI JOIN _late_step s ON s.incarnation = c.incarnation AND s.step = c.step
JOIN teams t ON t.group_id = c.group_id AND t.incarnation = c.incarnation
JOIN causes k ON k.op = c.op
LEFT JOIN _late_gone g ON g.group_id = c.group_id AND g.incarnation = c.incarnation
JOIN place p ON p.proc = c.proc AND p.incarnation = c.incarnation {aligned}
WHERE c.seq IS NOT NULL AND c.issued_ns IS NOT NULL AND c.rank IS NOT NULL
    AND (is_device OR c.timing_source IN ('wait', 'flight_recorder') OR t.backend IS NULL OR (t.backend NOT LIKE '%nccl%' AND t.backend NOT LIKE '%rccl%' AND t.backend NOT LIKE '%hccl%'));

-- name: operations
-- Operations of which every member left a begin on the common clock (is_whole), or all who left any row of anything (is_compared too), or only some;
-- where a member is missing nobody knows when it came: gone: the lowest of those who left no row at all. floor: nobody arrives before its predecessor in the group was over: at
-- the latest begin for which one before it had to wait, or when the last one was seen to end. Ends on devices that do not coincide were matched wrongly.
-- is_level: its members are to arrive together. Those of different pipeline stages, or of a transfer, are not: they only inherit.
-- flight: counts up where all members had waited for the one before, or, where no wait of it was seen, when the next step begins. Until then
-- they issue operations one after the other and meet at none.
CREATE OR REPLACE TEMP TABLE _late_operation AS
WITH followed AS (
    SELECT *, lag(wait_end_ns) OVER (PARTITION BY incarnation, team, pair, proc ORDER BY seq, begin_ns) AS left_ns FROM _late_row),
matched AS (
    SELECT incarnation, team, pair, seq, op, bool_and(coalesce(left_ns <= begin_ns, false)) AS is_met, count(left_ns) = 0 AS is_unseen, min(kind) AS kind, min(step) AS step, min(begin_ns) AS first_begin_ns, max(begin_ns) AS last_begin_ns,
        CASE min(kind) WHEN 'leaf' THEN min(begin_ns) ELSE max(begin_ns) FILTER (is_cause) END AS over_ns,
        min(end_ns) AS first_end_ns, count(*) = max(size) AS is_whole, count(*) + coalesce(max(num_gone), 0) >= max(size) AS is_compared, max(gone) AS gone,
        min(kind) <> 'pair' AND count(DISTINCT stage) <= 1 AND is_compared AS is_level
    FROM followed GROUP BY incarnation, team, pair, seq, op
    HAVING count(*) <= max(size) AND count(DISTINCT proc) = count(*) AND count(begin_ns) = count(*) AND max(size) > 1
        AND (count(*) < max(size) OR bool_or(is_cause) AND bool_or(is_waiter))
        AND (NOT bool_and(is_device) OR min(kind) <> 'all' OR count(end_ns) < count(*)
            OR max(end_ns) - min(end_ns) <= {error_ns} + max(begin_ns) - min(begin_ns))),
floored AS (SELECT lag(step) OVER (PARTITION BY incarnation, team, pair ORDER BY seq, last_begin_ns, op) AS step_before, row_number() OVER (ORDER BY incarnation, step, last_begin_ns, team, pair, seq, op) AS operation, *,
    greatest(max(over_ns) OVER (PARTITION BY incarnation, team, pair ORDER BY seq, last_begin_ns, op ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
        lag(first_end_ns) OVER (PARTITION BY incarnation, team, pair ORDER BY seq, last_begin_ns, op)) AS floor_ns
    FROM matched)
SELECT *, count(*) FILTER (kind = 'pair' OR floor_ns IS NULL OR (first_begin_ns >= floor_ns AND (is_met OR (is_unseen AND step > step_before))))
    OVER (PARTITION BY incarnation, team, pair ORDER BY seq, last_begin_ns, op ROWS UNBOUNDED PRECEDING) AS flight
FROM floored;

-- name: arrivals
-- Each rank's arrival. most: the lateness that it can have there: how much later than the first it began, beyond what it was later already
-- at others in flight with this one. start: when it left the one before: all together, or each when it began it, if both are in flight.
-- left: when it was seen to leave one of which a member is missing.
CREATE OR REPLACE TEMP TABLE _late_arrival AS
SELECT o.operation, o.incarnation, o.step, o.team, o.pair, o.flight, o.is_level, o.kind IN ('all', 'pair') AS is_left_together, r.proc, r.rank, r.is_cause, r.is_waiter,
    r.wait_begin_ns, r.wait_end_ns, r.begin_ns, coalesce(lag(r.begin_ns) OVER (PARTITION BY o.incarnation, o.team, o.pair, o.flight, r.proc ORDER BY o.operation), o.floor_ns) AS start_ns,
    greatest(r.begin_ns, coalesce(o.floor_ns, r.begin_ns)) AS arrival_ns, CASE WHEN o.kind = 'all' THEN greatest(0, r.begin_ns - o.first_begin_ns
        - coalesce(max(r.begin_ns - o.first_begin_ns) OVER (PARTITION BY o.incarnation, o.team, o.pair, o.flight, r.proc ORDER BY o.operation
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)) END AS most_ns,
    CASE WHEN NOT o.is_whole THEN coalesce(r.wait_end_ns, r.end_ns) END AS left_ns
FROM _late_row r JOIN _late_operation o ON o.incarnation = r.incarnation AND o.team = r.team AND o.pair = r.pair AND o.seq = r.seq AND o.op = r.op;

-- name: last
-- The arrival that ended the waiting, whose it was (the lowest rank's among equals), and the first arrival of those who wait.
CREATE OR REPLACE TEMP TABLE _late_last AS
SELECT operation, max(arrival_ns) FILTER (is_cause) AS last_ns,
    arg_max(rank, CAST(arrival_ns AS HUGEINT) * 1048576 - rank) FILTER (is_cause) AS culprit,
    min(arrival_ns) FILTER (is_waiter) AS first_ns
FROM _late_arrival GROUP BY operation;

-- name: missing
-- What a rank waits at an operation of which a member is missing, after the last arrival that was seen, it may have waited for that member (or it
-- is the transfer): an operation of its own, of which nobody is compared, so that nobody is blamed for what may be inherited.
INSERT INTO _late_operation BY NAME
SELECT operation + (SELECT max(operation) FROM _late_operation) AS operation, incarnation, step, gone FROM _late_operation WHERE NOT is_whole;

-- name: missing_last
INSERT INTO _late_last BY NAME SELECT operation, gone AS culprit FROM _late_operation WHERE team IS NULL;

-- name: waiting
-- What `lateness_waits` reads, and more that is kept. until: the last arrival, for those who wait for it; then, in the operations that stand for
-- missing members, the end.
WITH arrived AS (
    SELECT a.* EXCLUDE (start_ns, wait_begin_ns, wait_end_ns), l.culprit, l.first_ns, CASE WHEN a.is_waiter THEN greatest(l.last_ns, a.arrival_ns) ELSE a.arrival_ns END AS until_ns
    FROM _late_arrival a JOIN _late_last l ON l.operation = a.operation)
SELECT * EXCLUDE (left_ns) FROM arrived UNION ALL BY NAME
SELECT a.* EXCLUDE (left_ns) REPLACE (a.operation + n.num AS operation, -1 - a.flight AS flight, false AS is_level, true AS is_left_together, false AS is_cause, true AS is_waiter,
    a.until_ns AS begin_ns, a.until_ns AS arrival_ns, NULL AS most_ns, NULL AS first_ns, l.culprit AS culprit, a.left_ns AS until_ns)
FROM arrived a CROSS JOIN (SELECT max(operation) AS num FROM _late_operation WHERE team IS NOT NULL) n JOIN _late_last l ON l.operation = a.operation + n.num
WHERE a.is_waiter AND a.left_ns > a.until_ns;

-- name: waits
-- Its rows, each with its turn, wait, waited and since_turn, which `lateness_waits` computes.
CREATE OR REPLACE TEMP TABLE _late_wait AS
SELECT operation, incarnation, step, team, is_level, proc, rank, is_cause, is_waiter, arrival_ns, most_ns, culprit, first_ns, turn, wait_ns, waited_ns, since_turn
FROM _charged;

-- name: shares
-- Lateness after the first arrival, and the part of it that the rank inherited: what it waited elsewhere meanwhile, beyond what the first
-- rank waited.
CREATE OR REPLACE TEMP TABLE _late_share AS
SELECT w.operation, w.incarnation, w.step, w.team, w.is_level, w.proc, w.rank, w.is_cause, w.culprit, w.turn, w.since_turn, w.wait_ns, w.waited_ns,
    CASE WHEN w.is_cause THEN least(w.most_ns, greatest(0, w.arrival_ns - w.first_ns)) ELSE 0 END AS lateness_ns,
    least(lateness_ns, greatest(0, w.waited_ns - m.waited_ns)) AS inherited_ns
FROM _late_wait w JOIN (
    SELECT operation, min(waited_ns) AS waited_ns FROM _late_wait WHERE is_waiter AND arrival_ns = first_ns GROUP BY operation) m
    ON m.operation = w.operation;

-- name: edges
-- Where a culprit's inherited lateness comes from: the operations that it waited for since the one before in the same group, in this step
-- or the one before.
CREATE OR REPLACE TEMP TABLE _late_edge AS
WITH heirs AS (
    SELECT s.*, unnest([s.step, s.step - 1]) AS where_step FROM _late_share s WHERE s.rank = s.culprit AND s.is_cause AND s.inherited_ns > 0)
SELECT h.operation AS from_operation, w.operation AS to_operation, h.inherited_ns / h.lateness_ns AS share,
    w.wait_ns / sum(w.wait_ns) OVER (PARTITION BY h.operation) AS part
FROM heirs h JOIN _late_wait w ON w.incarnation = h.incarnation AND w.proc = h.proc AND w.step = h.where_step
    AND w.turn < h.turn AND w.turn > h.since_turn AND w.wait_ns > 0;

-- name: blame
-- The waits charged to each operation of a group, with nobody's share passed on yet. held: by whom; amount: still to be split.
CREATE OR REPLACE TEMP TABLE _late_blame AS
SELECT operation, min(step) AS step, min(incarnation) AS incarnation, min(culprit) AS culprit, CAST(sum(wait_ns) AS BIGINT) AS amount_ns
FROM _late_wait WHERE is_level GROUP BY operation HAVING sum(wait_ns) > 0;

-- name: passed
-- One hand-over: what every culprit passes on to the culprits of the operations that made it late.
CREATE OR REPLACE TEMP TABLE _late_passed AS
SELECT b.operation AS from_operation, e.to_operation, CAST(floor(b.amount_ns * e.share * e.part) AS BIGINT) AS amount_ns
FROM _late_blame b JOIN _late_edge e ON e.from_operation = b.operation;

-- name: kept
-- What stays with each culprit after the hand-over, by step.
INSERT INTO _late_kept
SELECT b.incarnation, b.step, b.culprit AS rank, CAST(sum(b.amount_ns - coalesce(p.amount_ns, 0)) AS BIGINT)
FROM _late_blame b LEFT JOIN (
    SELECT from_operation, CAST(sum(amount_ns) AS BIGINT) AS amount_ns FROM _late_passed GROUP BY from_operation) p ON p.from_operation = b.operation
GROUP BY b.incarnation, b.step, b.culprit;

-- name: handed
-- From whom to whom the hand-over went.
INSERT INTO _late_handed
SELECT f.culprit, t.culprit, CAST(sum(p.amount_ns) AS BIGINT)
FROM _late_passed p JOIN _late_last f ON f.operation = p.from_operation JOIN _late_last t ON t.operation = p.to_operation
WHERE f.culprit IS NOT NULL AND t.culprit IS NOT NULL GROUP BY f.culprit, t.culprit;

-- name: next
-- What was handed over is to be split in turn.
CREATE OR REPLACE TEMP TABLE _late_blame AS
SELECT o.operation, o.step, o.incarnation, l.culprit, CAST(sum(p.amount_ns) AS BIGINT) AS amount_ns
FROM _late_passed p JOIN _late_operation o ON o.operation = p.to_operation JOIN _late_last l ON l.operation = p.to_operation
WHERE p.amount_ns > 0 GROUP BY o.operation, o.step, o.incarnation, l.culprit;

-- name: by_step
-- One row per step and rank. A rank that is late in one group is late in the others too: the group in which it is most so counts.
WITH by_team AS (
    SELECT incarnation, step, rank, team, CAST(sum(lateness_ns - inherited_ns) AS BIGINT) AS own_ns, CAST(sum(inherited_ns) AS BIGINT) AS inherited_ns
    FROM _late_share WHERE is_level GROUP BY incarnation, step, rank, team),
late AS (SELECT incarnation, step, rank, max(own_ns) AS own_ns, max(inherited_ns) AS inherited_ns FROM by_team GROUP BY incarnation, step, rank),
waited AS (SELECT incarnation, step, rank, CAST(sum(wait_ns) AS BIGINT) AS wait_ns FROM _late_wait WHERE is_level GROUP BY incarnation, step, rank),
blamed AS (SELECT incarnation, step, rank, CAST(sum(amount_ns) AS BIGINT) AS blame_ns FROM _late_kept GROUP BY incarnation, step, rank)
SELECT l.incarnation, l.step, l.rank, s.duration_ns, l.own_ns, l.inherited_ns, w.wait_ns, coalesce(b.blame_ns, 0) AS blame_ns
FROM late l JOIN _late_step s ON s.incarnation = l.incarnation AND s.step = l.step AND s.is_told
JOIN waited w ON w.incarnation = l.incarnation AND w.step = l.step AND w.rank = l.rank
LEFT JOIN blamed b ON b.incarnation = l.incarnation AND b.step = l.step AND b.rank = l.rank
ORDER BY l.incarnation, l.step, l.rank;

-- name: matched
-- Operations that could be compared, and those of counted steps in all.
SELECT (SELECT CAST(count(*) AS BIGINT) FROM _late_operation WHERE is_compared),
    (SELECT CAST(count(*) AS BIGINT) FROM (SELECT DISTINCT incarnation, team, pair, seq, op FROM _late_row));

-- name: inheritance
-- Who handed how much on to whom.
SELECT heir, source, CAST(sum(amount_ns) AS BIGINT) AS amount_ns FROM _late_handed GROUP BY heir, source
HAVING sum(amount_ns) > 0 ORDER BY heir, amount_ns DESC, source;
