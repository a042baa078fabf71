-- What the planner expects of tables that are still empty: without it every index of an org's rows looks as good as the one
-- made for the statement, and plans made then read all rows of the org once there are many. So it is shown a few rows of each
-- sort, which are gone when this ends; what it has learned of them stays until there are rows of its own to learn from.
-- A step of its own: emptied by the transaction that made it, a table counts as one that is known to be empty.
DO $$
DECLARE
    nobody CONSTANT UUID := '00000000-0000-0000-0000-000000000000';
BEGIN
    PERFORM set_config('flovyn.org', '*', true);
    -- Of ten runs one waits for a worker, one is held, two wait for something, and six have ended; some have a child.
    INSERT INTO agent_execution (org_id, run, id, status, ready, worker, last_worker, lease_expires, tail_limit, due_at, kind,
        queue, priority, input_digest, limits, root_id, parent_id, created_at, updated_at, ended_at, input)
        OVERRIDING SYSTEM VALUE
        SELECT nobody, -n, md5(n::text)::uuid, (ARRAY[0, 1, 2, 2, 5, 5, 5, 5, 6, 7])[n % 10 + 1], n % 10 = 0,
            CASE n % 10 WHEN 1 THEN gen_random_uuid() END, CASE WHEN n % 10 IN (2, 3) THEN gen_random_uuid() END,
            CASE n % 10 WHEN 1 THEN n END, 50000, CASE WHEN n % 10 IN (1, 2) THEN n END, 'kind ' || n % 5, 'queue ' || n % 2,
            0, sha256(n::text::bytea), '{}', md5((n % 50)::text)::uuid, CASE WHEN n > 50 THEN md5((n - 50)::text)::uuid END,
            n, n, CASE WHEN n % 10 > 3 THEN n END, '{}'
        FROM generate_series(1, 60) n;
    -- Of ten tasks four wait for a worker, one is held, and five have ended.
    INSERT INTO task_execution (org_id, run, segment, sequence, id, status, placement, attempt, failed_attempts, losses, kind,
        queue, visible_at, worker, lease_expires, due_at, created_at, ended_at, label_key, input)
        SELECT x.org_id, x.run, n % 2, n, gen_random_uuid(), (ARRAY[0, 0, 0, 0, 1, 2, 2, 2, 3, 4])[(n - x.run) % 10 + 1],
            n % 2, 1, 0, 0, x.kind, x.queue, n, CASE (n - x.run) % 10 WHEN 4 THEN gen_random_uuid() END,
            CASE (n - x.run) % 10 WHEN 4 THEN n END, CASE (n - x.run) % 10 WHEN 4 THEN n END, n,
            CASE WHEN (n - x.run) % 10 > 4 THEN n END, sha256(n::text::bytea), '{}'
        FROM agent_execution x, generate_series(0, 4) n;
    INSERT INTO agent_op (org_id, run, segment, sequence, kind, label_name, label_key, due_at)
        SELECT x.org_id, x.run, n % 2, n, n % 7, 'label', sha256(n::text::bytea), CASE (n - x.run) % 10 WHEN 1 THEN n END
        FROM agent_execution x, generate_series(5, 7) n;
    INSERT INTO agent_entry (org_id, run, segment, sequence, id, depth, thread, role, entry_type, label_key, created_at, content)
        SELECT x.org_id, x.run, n % 2, n, gen_random_uuid(), n, '', 'user', 'message', sha256(n::text::bytea), n, '{}'
        FROM agent_execution x, generate_series(8, 11) n;
    INSERT INTO agent_signal (org_id, run, number, id, name, delivery, idempotency_key, consumed_segment, created_at, payload)
        SELECT x.org_id, x.run, n, gen_random_uuid(), 'name', 0, 'key ' || n, CASE WHEN n < 3 THEN 0 END, n, '{}'
        FROM agent_execution x, generate_series(1, 3) n;
    INSERT INTO event (org_id, run, number, at, kind, segment, commit_number)
        SELECT x.org_id, x.run, n, n, n % 20, n % 2, CASE n % 2 WHEN 1 THEN n END
        FROM agent_execution x, generate_series(1, 10) n;
    ANALYZE agent_execution, task_execution, agent_op, agent_entry, agent_signal, event;
    -- A table that was emptied so counts as one that was never looked at: it is taken to have some pages of such rows.
    TRUNCATE agent_execution, task_execution, agent_op, agent_entry, agent_signal, event CASCADE;
END
$$;
