-- name: rows
SELECT * FROM part_sampled;

-- name: focus
-- The rows of some groups in blocks of steps.
SELECT c.incarnation, c.proc, c.rank, c.step, c.group_id, c.op, c.seq, c.src, c.dst, c.tag, c.root, c.issued_ns, c.returned_ns, c.wait_begin_ns,
    c.wait_end_ns, c.completed_ns, c.device_start_ns, c.device_end_ns, c.stage, c.timing_source
FROM collective c SEMI JOIN sample_group USING (group_id) CROSS JOIN sample_choice o WHERE c.step // o.block % o.stride = o.first;
