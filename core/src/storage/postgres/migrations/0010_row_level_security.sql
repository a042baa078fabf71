-- The second wall between organizations: a session sees the rows of the org that its transaction names in `flovyn.org`, of all
-- where that is `*`, and none where it names nothing. It holds for the owner of the tables too; superusers pass it.
DO $$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'organization', 'api_key', 'agent_definition', 'agent_execution', 'agent_op', 'agent_entry', 'task_execution',
        'agent_checkpoint', 'agent_signal', 'commit_request', 'resume_request', 'event', 'payload', 'payload_piece',
        'payload_reference', 'worker', 'enrolled_worker', 'watch', 'preview', 'schedule', 'queue_limit', 'ledger', 'audit'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY of_org ON %I USING (current_setting(''flovyn.org'', true) = ''*'' '
            'OR org_id::text = current_setting(''flovyn.org'', true))',
            name
        );
    END LOOP;
END
$$;
