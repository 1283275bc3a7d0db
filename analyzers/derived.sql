-- name: counted_step
-- Steps that count, by process: ended, not left out by the job (warm-up, checkpoint, eval), and not the first one.
CREATE VIEW counted_step AS
SELECT proc, incarnation, rank, step, start_ns, end_ns, end_ns - start_ns AS duration_ns FROM step
WHERE end_ns >= start_ns AND left_out IS NULL AND step > 0;
